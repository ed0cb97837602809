"""Faults that are a little story: several steps in one order, each waiting for what it needs.

They come as ordinary kinds of faults (a sound cluster survives them), and they show what rules are for:
without the check of `min.insync.replicas` `lose_tail` loses what was acknowledged, without the fence of
epochs `late_orders` does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.faults import HELD, Kind, others, victim
from tests.chaos.schedule import Step
from tests.chaos.world import NUMBERS, SESSION_S, World

_SETTLED_S = SESSION_S + 2.0
"""After this long a session that was lost has expired, and others lead."""


@contextmanager
def lose_tail(world: World, step: Step) -> Iterator[None]:
    """A leader remains alone and loses power: what it wrote since is gone, and was not acknowledged."""
    number = victim(world, step)
    with world.claim([f"b{each}" for each in NUMBERS]):
        world.say(f"broker {number} remains alone, and loses what it writes then")
        for each in others(number):
            world.kill_broker(each)
        time.sleep(_SETTLED_S)
        log = world.logs[number]
        kept = _sizes(log)
        time.sleep(2.0)
        world.kill_broker(number)
        _cut_back(log, kept)
        for each in NUMBERS:
            world.launch_broker(each)
        yield


def _sizes(log: Path) -> dict[Path, int]:
    return {path: path.stat().st_size for path in log.glob("*/*.log")}


def _cut_back(log: Path, kept: Mapping[Path, int]) -> None:
    for path in log.glob("*/*.log"):
        size = kept.get(path)
        if size is None:
            path.unlink()
        elif path.stat().st_size > size:
            with path.open("r+b") as segment:
                segment.truncate(size)


@contextmanager
def late_orders(world: World, step: Step) -> Iterator[None]:
    """What a controller sent arrives after another one has taken over and another leader has acknowledged.

    The controller C hears that B has died and tells A to follow C on, but A does not get that. C loses
    ZooKeeper and another controller comes; A leads, B follows it, both acknowledge. Then A gets C's order.
    Had it obeyed, it would have cut back what it has acknowledged, and when B dies A leads without it.
    """
    controller = victim(world, dataclasses.replace(step, role="controller"))
    receiver, dead = others(controller)[:: 1 if step.share < 0.5 else -1]
    c, a, b = f"b{controller}", f"b{receiver}", f"b{dead}"
    away = [(c, f"z{each}", way) for each in NUMBERS for way in ("there", "back")]
    with world.claim([c, a, b]), contextlib.ExitStack() as cut_off:
        world.say(f"orders of controller {controller} to broker {receiver} come late")
        with world.network.disturbed([(c, a, "there")], HELD):
            world.kill_broker(dead)
            time.sleep(_SETTLED_S)
            cut_off.enter_context(world.network.disturbed(away, HELD))
            world.launch_broker(dead)
            time.sleep(_SETTLED_S + 4.0)
        time.sleep(3.0)
        world.kill_broker(dead)
        time.sleep(_SETTLED_S)
        world.launch_broker(dead)
        yield


KINDS: Mapping[str, Kind] = {"lose_tail": lose_tail, "late_orders": late_orders}
