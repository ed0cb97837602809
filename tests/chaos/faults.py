"""The faults, each a context: broken inside, whole again afterwards.

One function for each kind of `schedule.WEIGHTS`; it does what its step says to a `World`. Kinds that need a
certain order of events are in `scenes`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.chaos.claims import LeftOut
from tests.chaos.network import Fault, Wire, both, flows
from tests.chaos.schedule import Step
from tests.chaos.world import NUMBERS, World

Kind = Callable[[World, Step], AbstractContextManager[None]]
_JUMP_S = 1800.0
HELD, REFUSED = Fault(held=True), Fault(refused=True)


def victim(world: World, step: Step) -> int:
    """The broker in the step's role now; where nobody can say, the one that was drawn."""
    if step.role == "any":
        return step.victim
    client = AdminClient({"bootstrap.servers": world.bootstrap, "log_level": 0, "socket.timeout.ms": 2000})
    try:
        known = client.list_topics("chaos", timeout=3)
    except KafkaException:
        return step.victim
    leaders = [each.leader for each in known.topics["chaos"].partitions.values()]
    found = known.controller_id
    if step.role == "leader" and leaders:
        found = leaders[step.victim % len(leaders)]
    return found if found in NUMBERS else step.victim


def others(number: int) -> list[int]:
    return [each for each in NUMBERS if each != number]


# -- processes


@contextmanager
def kill(world: World, step: Step) -> Iterator[None]:
    """SIGKILL; back after the step's time, shorter or longer than the session."""
    number = victim(world, step)
    with world.claim([f"b{number}"]):
        world.say(f"kill broker {number} ({step.role})")
        world.kill_broker(number)
        yield
        world.launch_broker(number)


@contextmanager
def kill_ahead(world: World, step: Step) -> Iterator[None]:
    """The others stand still, shorter than they may lag; one is killed before they have all it has."""
    number = victim(world, step)
    with world.claim([f"b{each}" for each in NUMBERS]):
        world.say(f"kill broker {number} while the others stand still")
        with contextlib.ExitStack() as stopped:
            for each in others(number):
                stopped.enter_context(still(world, each))
            time.sleep(1.0)
            world.kill_broker(number)
        yield
        world.launch_broker(number)


@contextmanager
def pause(world: World, step: Step) -> Iterator[None]:
    """SIGSTOP, shorter or longer than the session: what it does afterwards must not count."""
    number = victim(world, step)
    with world.claim([f"b{number}"]):
        world.say(f"pause broker {number} ({step.role}) for {step.seconds:g} s")
        with still(world, number):
            yield


@contextmanager
def still(world: World, number: int) -> Iterator[None]:
    """SIGSTOP inside."""
    broker = world.brokers[number]
    with contextlib.suppress(ProcessLookupError):  # it may have ended by itself at this moment
        broker.pause()
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            broker.resume()


@contextmanager
def restart(world: World, step: Step) -> Iterator[None]:
    """A clean stop, and a start."""
    number = victim(world, step)
    with world.claim([f"b{number}"]):
        world.say(f"restart broker {number} ({step.role})")
        world.stop_broker(number)
        yield
        world.launch_broker(number)


@contextmanager
def kill_zookeeper(world: World, step: Step) -> Iterator[None]:
    server = world.ensemble.servers[step.victim]
    with world.claim([f"z{step.victim}"]):
        world.say(f"kill ZooKeeper server {step.victim} ({server.mode or 'no quorum'})")
        server.kill()
        yield
        world.launch_zookeeper(step.victim)


@contextmanager
def pause_zookeeper(world: World, step: Step) -> Iterator[None]:
    server = world.ensemble.servers[step.victim]
    with world.claim([f"z{step.victim}"]):
        world.say(f"pause ZooKeeper server {step.victim} ({server.mode or 'no quorum'})")
        server.pause()
        try:
            yield
        finally:
            server.resume()


@contextmanager
def restart_zookeeper(world: World, step: Step) -> Iterator[None]:
    with world.claim([f"z{step.victim}"]):
        world.say(f"restart ZooKeeper server {step.victim}")
        world.ensemble.servers[step.victim].stop()
        yield
        world.launch_zookeeper(step.victim)


# -- what a process stands on


@contextmanager
def clock_jump(world: World, step: Step) -> Iterator[None]:
    """The wall clock of one broker goes up to half an hour ahead or back, and then right again."""
    number = victim(world, step)
    clock = world.clocks.get(number)
    if clock is None:
        raise LeftOut("there is no C compiler on PATH: clocks of processes cannot be moved")
    ahead_s = _JUMP_S * (2 * step.share - 1)
    with world.claim([f"b{number}"]):
        world.say(f"the clock of broker {number} jumps by {ahead_s:+.0f} s for {step.seconds:g} s")
        clock.set(ahead_s=ahead_s)
        try:
            yield
        finally:
            clock.set(ahead_s=0)


@contextmanager
def full_disk(world: World, step: Step) -> Iterator[None]:
    """The one broker whose disk is small has no room."""
    if world.disk is None:
        raise LeftOut("a small file system cannot be mounted here (root may)")
    with world.claim([f"b{world.small}"]):
        world.say(f"the disk of broker {world.small} is full for {step.seconds:g} s")
        with world.disk.full():
            yield


# -- the network


def _between(brokers: Iterable[int], peers: Iterable[str], step: Step, *, one_way: bool) -> list[Wire]:
    """All between these brokers and those peers, or only what flows one way (which is drawn)."""
    pairs = [(f"b{number}", peer) for number in brokers for peer in peers]
    if not one_way:
        return [wire for one, other in pairs for wire in both(one, other)]
    away = step.share < 0.5
    return [wire for one, other in pairs for wire in (flows(one, other) if away else flows(other, one))]


@contextmanager
def _cut(world: World, wires: list[Wire], step: Step, what: str, *, one_way: bool) -> Iterator[None]:
    fault = REFUSED if step.is_reset and not one_way else HELD
    way = "one way" if one_way else "with resets" if fault is REFUSED else "both ways"
    world.say(f"cut {what}, {way}, for {step.seconds:g} s")
    with world.network.disturbed(wires, fault):
        yield


def cut_brokers(world: World, step: Step) -> AbstractContextManager[None]:
    number = victim(world, step)
    wires = _between([number], [f"b{_another(number, step)}"], step, one_way=False)
    return _cut(world, wires, step, f"broker {number} from {_another(number, step)}", one_way=False)


def cut_one_way(world: World, step: Step) -> AbstractContextManager[None]:
    """Data of one direction stops, between two brokers or between one and both others."""
    number = victim(world, step)
    peers = [f"b{each}" for each in others(number)] if step.is_reset else [f"b{_another(number, step)}"]
    wires = _between([number], peers, step, one_way=True)
    return _cut(world, wires, step, f"broker {number} from {', '.join(peers)}", one_way=True)


def isolate(world: World, step: Step) -> AbstractContextManager[None]:
    """From the other brokers and from ZooKeeper, but not from clients: who led goes on believing it."""
    number = victim(world, step)
    peers = [*(f"b{each}" for each in others(number)), *(f"z{each}" for each in NUMBERS)]
    wires = _between([number], peers, step, one_way=step.is_one_way)
    return _cut(world, wires, step, f"broker {number} from the cluster", one_way=step.is_one_way)


def cut_zookeeper(world: World, step: Step) -> AbstractContextManager[None]:
    """One broker from every ZooKeeper server, or from one of them."""
    number = victim(world, step)
    peers = [f"z{each}" for each in (NUMBERS if step.share < 0.7 else [step.other])]
    wires = _between([number], peers, step, one_way=step.is_one_way)
    return _cut(world, wires, step, f"broker {number} from {', '.join(peers)}", one_way=step.is_one_way)


def cut_clients(world: World, step: Step) -> AbstractContextManager[None]:
    number = victim(world, step)
    wires = _between([number], ["client"], step, one_way=step.is_one_way)
    return _cut(world, wires, step, f"clients from broker {number}", one_way=step.is_one_way)


def cut_quorum(world: World, step: Step) -> AbstractContextManager[None]:
    """One ZooKeeper server from the others: quorum and elections, or, one way, only what it says there."""
    number = step.victim
    wires = [
        wire
        for each in others(number)
        for letter in "qe"
        for wire in (
            (f"z{number}", f"{letter}{each}", "there"),
            (f"z{each}", f"{letter}{number}", "back"),
            (f"z{number}", f"{letter}{each}", "back"),
            (f"z{each}", f"{letter}{number}", "there"),
        )[: 2 if step.is_one_way else 4]
    ]
    return _cut(world, wires, step, f"ZooKeeper server {number} from the others", one_way=step.is_one_way)


@contextmanager
def _slow(world: World, wires: list[Wire], step: Step, what: str) -> Iterator[None]:
    fault = (
        Fault(delay_s=0.02 + 0.28 * step.share)
        if step.is_one_way
        else Fault(bytes_per_s=20_000 + 200_000 * step.share)
    )
    world.say(f"slow {what}: {dict(fault)} for {step.seconds:g} s")
    with world.network.disturbed(wires, fault):
        yield


def slow_brokers(world: World, step: Step) -> AbstractContextManager[None]:
    number = victim(world, step)
    wires = _between([number], [f"b{each}" for each in others(number)], step, one_way=False)
    return _slow(world, wires, step, f"broker {number} and the others")


def slow_zookeeper(world: World, step: Step) -> AbstractContextManager[None]:
    number = victim(world, step)
    wires = _between([number], [f"z{each}" for each in NUMBERS], step, one_way=False)
    return _slow(world, wires, step, f"broker {number} and ZooKeeper")


def slow_clients(world: World, step: Step) -> AbstractContextManager[None]:
    number = victim(world, step)
    return _slow(world, both(f"b{number}", "client"), step, f"broker {number} and clients")


def _another(number: int, step: Step) -> int:
    return others(number)[step.other % 2]


SINGLE: Mapping[str, Kind] = {
    each.__name__: each
    for each in (
        kill, kill_ahead, pause, restart, kill_zookeeper, pause_zookeeper, restart_zookeeper,
        clock_jump, full_disk,
        cut_brokers, cut_one_way, isolate, cut_zookeeper, cut_clients, cut_quorum,
        slow_brokers, slow_zookeeper, slow_clients,
    )
}  # fmt: skip
