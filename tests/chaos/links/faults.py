"""The faults of a link run, each a context: broken inside, whole again afterwards.

One function for each kind of `schedule.WEIGHTS`; it does what its step says to a `LinkWorld`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from confluent_kafka import KafkaException, TopicPartition

from tests.chaos.claims import LeftOut
from tests.chaos.links.losing import lose_mirrors
from tests.chaos.links.schedule import BROKERS, Step
from tests.chaos.links.world import LINKS, LinkWorld, answered, ends
from tests.chaos.mirrors.topics import keeps
from tests.chaos.network import Fault, Wire, both, flows
from tests.support.waiting import wait_until

Kind = Callable[[LinkWorld, Step], AbstractContextManager[None]]
_HELD = Fault(held=True)
MOST_PARTITIONS = 6
MOST_TOPICS = 4


def link_of(step: Step) -> str:
    return LINKS[step.link]


def side_of(step: Step) -> str:
    source, target = ends(link_of(step))
    return source if step.at_source else target


def broker_of(world: LinkWorld, step: Step) -> str:
    names = world.brokers_of(side_of(step))
    return names[(step.broker - 1) % len(names)]


def worker_of(world: LinkWorld, step: Step) -> str:
    names = world.workers_of(link_of(step))
    if not names:
        raise LeftOut(f"nothing runs {link_of(step)}")
    return names[step.broker % len(names)]


# -- processes


@contextmanager
def _away(world: LinkWorld, *names: str) -> Iterator[None]:
    for name in names:
        world.kill(name)
    try:
        yield
    finally:
        for name in names:
            world.launch(name)


@contextmanager
def _still(world: LinkWorld, name: str) -> Iterator[None]:
    pid = world.pid(name)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextmanager
def kill_worker(world: LinkWorld, step: Step) -> Iterator[None]:
    """In the middle of its work, not while it starts."""
    name = worker_of(world, step)
    with world.claim([name]):
        try:
            wait_until(lambda: world.workers[name].ready, f"{name} is ready", bound_s=20)
        except AssertionError as error:
            raise LeftOut(str(error)) from None
        world.wait(10 * step.delay_s)
        with _away(world, name):
            world.say(f"kill {name}")
            yield


@contextmanager
def pause_worker(world: LinkWorld, step: Step) -> Iterator[None]:
    """Shorter or longer than its lease: what it does when it wakes up must not count."""
    name = worker_of(world, step)
    with world.claim([name]):
        world.say(f"pause {name} for {step.long:g} s")
        with _still(world, name):
            world.wait(step.long)
            yield


@contextmanager
def stop_worker(world: LinkWorld, step: Step) -> Iterator[None]:
    name = worker_of(world, step)
    with world.claim([name]):
        world.say(f"stop {name}")
        world.stop(name)
        yield
        world.launch(name)


@contextmanager
def kill_broker(world: LinkWorld, step: Step) -> Iterator[None]:
    name = broker_of(world, step)
    with world.claim([name]), _away(world, name):
        world.say(f"kill {name}")
        yield


@contextmanager
def pause_broker(world: LinkWorld, step: Step) -> Iterator[None]:
    name = broker_of(world, step)
    with world.claim([name]):
        world.say(f"pause {name} for {step.seconds:g} s")
        with _still(world, name):
            yield


@contextmanager
def restart_broker(world: LinkWorld, step: Step) -> Iterator[None]:
    """In order. Not the only broker of a side, which is Apache Kafka: where a transaction ends while its
    partitions have no leader any more it forgets their markers (its log says that they are likely deleted),
    and they wait for ever."""
    name = broker_of(world, step)
    if len(world.brokers_of(side_of(step))) < BROKERS:
        raise LeftOut(f"{name} has the only replicas")
    with world.claim([name]):
        world.say(f"restart {name}")
        world.stop(name)
        world.launch(name)
        yield


@contextmanager
def kill_site(world: LinkWorld, step: Step) -> Iterator[None]:
    """All brokers of a side, and the link's process beside them."""
    names = [*world.brokers_of(side_of(step)), worker_of(world, step)]
    with world.claim(names), _away(world, *names):
        world.say(f"kill {', '.join(names)}")
        yield


# -- the path


def _path(world: LinkWorld, step: Step) -> list[tuple[str, str]]:
    """(worker, broker): between all of the link's processes and one side."""
    return [
        (worker, broker)
        for worker in world.workers_of(link_of(step))
        for broker in world.brokers_of(side_of(step))
    ]


@contextmanager
def _disturbed(world: LinkWorld, step: Step, what: str, wires: list[Wire], fault: Fault) -> Iterator[None]:
    world.say(f"{what} {link_of(step)} and {side_of(step)} for {step.seconds:g} s")
    with world.network.disturbed(wires, fault):
        yield


@contextmanager
def cut_path(world: LinkWorld, step: Step) -> Iterator[None]:
    wires = [wire for pair in _path(world, step) for wire in both(*pair)]
    with _disturbed(world, step, "cut between", wires, _HELD):
        yield


@contextmanager
def cut_path_one_way(world: LinkWorld, step: Step) -> Iterator[None]:
    pairs = _path(world, step)
    ways = pairs if step.is_outgoing else [(broker, worker) for worker, broker in pairs]
    wires = [wire for one, other in ways for wire in flows(one, other)]
    with _disturbed(world, step, "cut one way between", wires, _HELD):
        yield


@contextmanager
def reset_path(world: LinkWorld, step: Step) -> Iterator[None]:
    wires = [wire for pair in _path(world, step) for wire in both(*pair)]
    with _disturbed(world, step, "reset all between", wires, Fault(refused=True)):
        yield


@contextmanager
def slow_path(world: LinkWorld, step: Step) -> Iterator[None]:
    wires = [wire for pair in _path(world, step) for wire in both(*pair)]
    fault = Fault(delay_s=step.delay_s, bytes_per_s=step.bytes_per_s)
    with _disturbed(world, step, f"slow ({step.delay_s:g} s, {step.bytes_per_s:g} B/s)", wires, fault):
        yield


@contextmanager
def cut_brokers(world: LinkWorld, step: Step) -> Iterator[None]:
    """Between the brokers of one side: leadership and replicas change under the link. Nobody asks for an
    unclean election meanwhile, which would not hear of the other replica."""
    side = side_of(step)
    if len(world.brokers_of(side)) < BROKERS:
        raise LeftOut(f"{side} is one broker")
    with world.claim(world.brokers_of(side)):
        world.say(f"cut between the brokers of {side} for {step.seconds:g} s")
        with world.network.disturbed(both(f"{side}1", f"{side}2"), _HELD):
            yield


@contextmanager
def cut_clients(world: LinkWorld, step: Step) -> Iterator[None]:
    wires = both("client", broker_of(world, step))
    world.say(f"cut between clients and {broker_of(world, step)} for {step.seconds:g} s")
    with world.network.disturbed(wires, _HELD):
        yield


# -- topics

_numbers = itertools.count(1)


@contextmanager
def new_topic(world: LinkWorld, step: Step) -> Iterator[None]:
    """Written to from its birth on."""
    side = ends(link_of(step))[0]
    if len(world.topics[side]) >= MOST_TOPICS:
        raise LeftOut("there are enough topics")
    name = f"load-new-{next(_numbers)}"
    world.say(f"new topic {name} at {side}")
    with asked():
        world.create_topics(side, {name: 2})
    yield


@contextmanager
def more_partitions(world: LinkWorld, step: Step) -> Iterator[None]:
    side = ends(link_of(step))[0]
    name = list(world.topics[side])[step.broker % len(world.topics[side])]
    count = world.topics[side][name] + 1
    if count > MOST_PARTITIONS:
        raise LeftOut("there are enough partitions")
    world.say(f"{name} at {side} grows to {count} partitions")
    with asked():
        world.grow_topic(side, name, count)
    yield


@contextmanager
def delete_records(world: LinkWorld, step: Step) -> Iterator[None]:
    """While no worker of the link copies: some of it none has read."""
    link = link_of(step)
    side, names = ends(link)[0], world.workers_of(link)
    topics = sorted(topic for topic in world.topics[side] if not keeps(topic).keys)  # Kafka refuses it there
    topic = topics[int(step.long + step.broker) % len(topics)]
    tp = TopicPartition(topic, int(step.delay_s * 100) % world.topics[side][topic])
    with world.claim(names), contextlib.ExitStack() as stilled:
        for name in names:
            stilled.enter_context(_still(world, name))
        world.wait(min(step.seconds, 6.0))
        with asked():
            low, high = world.watermarks(side, tp)
            tp.offset = high if step.is_outgoing else low + (high - low) * 9 // 10
            world.say(
                f"records of {topic}-{tp.partition} at {side} are deleted up to {tp.offset} ({low} to {high})"
            )
            answered(world.admin(side).delete_records([tp])[tp])
    yield


@contextmanager
def asked() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise LeftOut(f"not among these faults: {error.args[0].name()}") from None


FAULTS: Mapping[str, Kind] = {
    kind.__name__: kind
    for kind in (
        kill_worker,
        pause_worker,
        stop_worker,
        kill_broker,
        pause_broker,
        restart_broker,
        kill_site,
        cut_path,
        cut_path_one_way,
        reset_path,
        slow_path,
        cut_brokers,
        cut_clients,
        new_topic,
        more_partitions,
        delete_records,
        lose_mirrors,
    )
}
assert BROKERS == 2, "cut_brokers names both"
