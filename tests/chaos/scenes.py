"""Faults that are a little story: several steps in one order, each waiting for what it needs.

They come as ordinary kinds of faults (a sound cluster survives them), and each makes one safety rule matter
(`directed`): where that rule is switched off clients lose what was acknowledged. What does not come in time
is not waited for: the story goes on without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, PartitionMetadata
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tests.chaos.clients import INPUT, PARTITIONS
from tests.chaos.faults import HELD, Kind, others, still, victim
from tests.chaos.history import Place
from tests.chaos.network import both
from tests.chaos.schedule import Step
from tests.chaos.world import NUMBERS, World

_A_WHILE_S = 2.0
"""For clients to write something: shorter than sessions, and than followers may lag."""
_SOMETHING = 1500
"""Bytes of some twenty records."""
_REACHED_S = 8.0
"""A follower has tried its leader again after a cut, and has copied something."""


def _until(condition: Callable[[], bool], bound_s: float) -> None:
    end = time.monotonic() + bound_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)


def _wait(world: World, asked: int, wanted: Callable[[ClusterMetadata], bool]) -> None:
    """Until this broker says what is wanted of the cluster, or for long enough."""
    address = f"127.0.0.1:{world.network.ports[f'b{asked}']}"
    end = time.monotonic() + world.patience_s
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
def return_ahead(world: World, step: Step) -> Iterator[None]:
    """A leader dies with records that nobody else has, others write in their place, it leads again.

    What it had alone must go when it comes back, or readers get it where they were told of something else;
    and it must not have been acknowledged.
    """
    number = step.victim
    heir = others(number)[0]
    with world.claim([f"b{each}" for each in NUMBERS]):
        place = _home(world, number)
        world.say(f"broker {number} dies ahead of the others, comes back and leads again")
        with contextlib.ExitStack() as stopped:
            for each in others(number):
                stopped.enter_context(still(world, each))
            _until_longer(world, number, place, _size(world, number, place), _A_WHILE_S)
            world.kill_broker(number)
        _wait(world, heir, _is_gone(number))
        _until_longer(world, heir, place, _size(world, number, place), world.patience_s)
        world.launch_broker(number)
        _wait(world, heir, _is_led_and_held_by(set(NUMBERS)))
        home = _lead_at_home(world)
        _wait(world, heir, lambda known: any(each.leader == number for each in _partitions(known)))
        del home
        yield


def _home(world: World, number: int) -> Place:
    """The partition that this broker leads when all is well."""
    client = AdminClient({"bootstrap.servers": world.bootstrap, "log_level": 0, "socket.timeout.ms": 2000})
    with contextlib.suppress(KafkaException):
        for each in _partitions(client.list_topics(INPUT, timeout=3)):
            if each.replicas[0] == number:
                return Place(INPUT, each.id)
    return Place(INPUT, number % PARTITIONS)


def _size(world: World, number: int, place: Place) -> int:
    """Bytes of this broker's replica."""
    return sum(path.stat().st_size for path in (world.logs[number] / str(place)).glob("*.log"))


def _until_longer(world: World, number: int, place: Place, than: int, bound_s: float) -> None:
    _until(lambda: _size(world, number, place) > than + _SOMETHING, bound_s)


def _lead_at_home(world: World, asked: int | None = None) -> AdminClient:
    """Ask for the election of preferred leaders; who keeps the client keeps the question open."""
    address = world.bootstrap if asked is None else f"127.0.0.1:{world.network.ports[f'b{asked}']}"
    client = AdminClient({"bootstrap.servers": address, "log_level": 0, "socket.timeout.ms": 5000})
    client.elect_leaders(ElectionType.PREFERRED, None)
    return client


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


@contextmanager
def deposed_unheard(world: World, step: Step) -> Iterator[None]:
    """A leader is deposed and does not hear of it, nor does its follower.

    A leads and B follows; the controller C takes leadership home, but its orders to A and B are late. Clients
    reach A and not C. As C copies nothing from A any more, A asks to go on with B alone. Had it been allowed
    that, it would acknowledge what has to go when it hears that C leads.
    """
    number = step.victim
    c, heir = f"b{number}", others(number)[0]
    with world.claim([f"b{each}" for each in NUMBERS]):
        place = _home(world, number)
        world.say(f"broker {number} takes leadership home, unheard by the others")
        with still(world, number):
            _wait(world, heir, _is_gone(number))
        _wait(world, heir, _is_led_and_held_by(set(NUMBERS)))
        _make_controller(world, number)
        with world.network.disturbed([(c, f"b{each}", "there") for each in others(number)], HELD):
            said = {each: len(world.brokers[each].output) for each in others(number)}
            home = _lead_at_home(world, number)
            _wait(world, number, lambda known: any(each.leader == number for each in _partitions(known)))
            with world.network.disturbed(both("client", c), HELD):
                _until(lambda: _has_asked(world, place, said, number), world.patience_s)
                _until_longer(world, heir, place, _size(world, heir, place), _A_WHILE_S)
                before = _size(world, heir, place)
        del home
        _wait(world, heir, _is_led_and_held_by(set(NUMBERS)))
        _until_longer(world, heir, place, before, world.patience_s)
        yield


def _has_asked(world: World, place: Place, said: Mapping[int, int], without: int) -> bool:
    """Somebody was allowed, or not, to go on without that broker: only a sign to go on."""
    outputs = [world.brokers[number].output[length:] for number, length in said.items()]
    asked = rf"{place}: .*in-sync replicas [\[(](?![^\])]*{without})"
    return any(re.search(asked, output) for output in outputs)


def _make_controller(world: World, number: int) -> None:
    """As operators do it: the node goes, and whoever sees that first takes it. The others cannot just now."""
    client = KazooClient(world.ensemble.connect)
    try:
        client.start(_A_WHILE_S)
        with contextlib.ExitStack() as stopped:
            for each in others(number):
                stopped.enter_context(still(world, each))
            client.delete("/chaos/controller")
            _until(lambda: client.exists("/chaos/controller") is not None, _A_WHILE_S)
    except (KazooException, KazooTimeoutError) as error:
        world.say(f"broker {number} is not made the controller: {error!r}")
    finally:
        client.stop()
        client.close()
    _wait(world, number, lambda known: known.controller_id == number)


KINDS: Mapping[str, Kind] = {
    each.__name__: each for each in (lose_tail, return_ahead, late_orders, deposed_unheard)
}
