"""Faults that are a little story: several steps in one order, each waiting for what it needs.

They come as ordinary kinds of faults (a sound cluster survives them), and they show what rules are for:
without the check of `min.insync.replicas` `lose_tail` loses what was acknowledged, without the fence of
epochs `late_orders` does. What does not come in time is not waited for: the story goes on without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, PartitionMetadata

from tests.chaos.clients import INPUT
from tests.chaos.faults import HELD, Kind, others, victim
from tests.chaos.network import both
from tests.chaos.schedule import Step
from tests.chaos.world import NUMBERS, World

_BOUND_S = 30.0
_A_WHILE_S = 2.0
"""For clients to write something."""
_REACHED_S = 8.0
"""A follower has tried its leader again after a cut, and has copied something."""


def _wait(world: World, asked: int, wanted: Callable[[ClusterMetadata], bool]) -> None:
    """Until this broker says what is wanted of the cluster, or for long enough."""
    address = f"127.0.0.1:{world.network.ports[f'b{asked}']}"
    end = time.monotonic() + _BOUND_S
    while time.monotonic() < end:
        # A new client each time: it asks this broker before it knows of any other one.
        client = AdminClient({"bootstrap.servers": address, "log_level": 0, "socket.timeout.ms": 2000})
        with contextlib.suppress(KafkaException):
            if wanted(client.list_topics(INPUT, timeout=3)):
                return
        time.sleep(0.3)
    world.say(f"broker {asked} does not say what was waited for")


def _partitions(known: ClusterMetadata) -> list[PartitionMetadata]:
    return list(known.topics[INPUT].partitions.values())


def _is_gone(number: int) -> Callable[[ClusterMetadata], bool]:
    """It leads nothing and is in no ISR."""
    return lambda known: all(each.leader != number and number not in each.isrs for each in _partitions(known))


def _is_led_and_held_by(brokers: set[int]) -> Callable[[ClusterMetadata], bool]:
    return lambda known: all(
        each.leader in brokers and brokers <= set(each.isrs) for each in _partitions(known)
    )


@contextmanager
def lose_tail(world: World, step: Step) -> Iterator[None]:
    """A leader remains alone and loses power: what it wrote since is gone, and was not acknowledged."""
    number = victim(world, step)
    with world.claim([f"b{each}" for each in NUMBERS]):
        world.say(f"broker {number} remains alone, and loses what it writes then")
        for each in others(number):
            world.kill_broker(each)
        _wait(world, number, lambda known: all(each.isrs == [number] for each in _partitions(known)))
        kept = _sizes(world.logs[number])
        time.sleep(_A_WHILE_S)
        world.kill_broker(number)
        _cut_back(world.logs[number], kept)
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
    """What a controller sent arrives when another one has taken over, and another leader.

    The controller C hears that B has died and tells A to follow C on; A does not get that. C is cut off from
    ZooKeeper and A, while clients go on writing to it; another controller comes, A leads and B follows it,
    but clients do not reach A. Then A gets C's order. Had it obeyed, it would fetch from C, and C would
    acknowledge what B does not have, who leads when A dies.
    """
    controller = victim(world, dataclasses.replace(step, role="controller"))
    receiver, dead = others(controller)[:: 1 if step.share < 0.5 else -1]
    c, a, b = f"b{controller}", f"b{receiver}", f"b{dead}"
    away = [(c, f"z{each}", way) for each in NUMBERS for way in ("there", "back")]
    with world.claim([c, a, b]), contextlib.ExitStack() as cut_off:
        world.say(f"orders of controller {controller} to broker {receiver} come late")
        with world.network.disturbed([(c, a, "there")], HELD), contextlib.ExitStack() as apart:
            world.kill_broker(dead)
            _wait(world, controller, _is_gone(dead))
            cut_off.enter_context(world.network.disturbed([*away, *both("client", a)], HELD))
            apart.enter_context(world.network.disturbed(both(c, a), HELD))
            world.launch_broker(dead)
            _wait(world, dead, _is_led_and_held_by({receiver, dead}))
        time.sleep(_REACHED_S)
        world.kill_broker(receiver)
        _wait(world, dead, _is_gone(receiver))
        world.launch_broker(receiver)
        yield


KINDS: Mapping[str, Kind] = {"lose_tail": lose_tail, "late_orders": late_orders}
