"""The faults of a run of mirrors: those of links; topics come, grow and go at the side that is written to,
mirrors are deleted, and records by request.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from confluent_kafka import KafkaException, TopicPartition

from tests.chaos.claims import LeftOut
from tests.chaos.links.faults import FAULTS as OF_LINKS
from tests.chaos.links.faults import MOST_PARTITIONS, Kind, asked
from tests.chaos.links.schedule import WEIGHTS, Step
from tests.chaos.links.world import LinkWorld
from tests.chaos.mirrors.topics import KEEPS, keeps
from tests.chaos.mirrors.world import MirrorWorld
from tests.support.waiting import wait_until

_numbers = itertools.count(1)
_MOST_TOPICS = len(KEEPS) + 2
OFTEN: Mapping[str, int] = {
    **WEIGHTS,
    "new_topic": 3,
    "delete_topic": 2,
    "delete_mirror": 1,
    "delete_records": 3,
}


@contextmanager
def new_topic(world: LinkWorld, step: Step) -> Iterator[None]:
    """Roles are changed by topic, so nobody writes to it before it has a mirror."""
    world = cast("MirrorWorld", world)
    if len(world.written) >= _MOST_TOPICS:
        raise LeftOut("there are enough topics")
    name = f"load-new-{next(_numbers)}"
    with world.roles:
        world.say(f"new topic {name} at {world.active}")
        with asked():
            world.create_topics(world.active, {name: 2})
        wait_until(lambda: _is_there(world, name), f"{name} has a mirror", bound_s=120)
        world.written = {**world.written, name: 2}
    yield


def _is_there(world: MirrorWorld, name: str) -> bool:
    try:
        return name in world.partitions(world.other)
    except KafkaException:
        return False


@contextmanager
def more_partitions(world: LinkWorld, step: Step) -> Iterator[None]:
    """Written to at once: a failover may come before the mirror has them."""
    world = cast("MirrorWorld", world)
    with world.roles:
        name = list(world.written)[step.broker % len(world.written)]
        count = world.written[name] + 1
        if count > MOST_PARTITIONS:
            raise LeftOut("there are enough partitions")
        world.say(f"{name} at {world.active} grows to {count} partitions")
        with asked():
            world.grow_topic(world.active, name, count)
        world.written = {**world.written, name: count}
    yield


@contextmanager
def delete_topic(world: LinkWorld, step: Step) -> Iterator[None]:
    """Nobody writes to it any more; a person deletes the mirror as well, which stays by itself."""
    world = cast("MirrorWorld", world)
    with world.roles:
        name = _one_that_came(world)
        world.say(f"{name} is deleted at {world.active}")
        world.written = {each: count for each, count in world.written.items() if each != name}
        world.deleted.add(name)
        time.sleep(1)
        for side in (world.active, world.other):
            _until(lambda side=side: world.delete_topics(side, [name]), f"{name} is deleted at {side}")
    yield


@contextmanager
def delete_mirror(world: LinkWorld, step: Step) -> Iterator[None]:
    """The link makes it anew and fills it; who changes roles waits until it is there."""
    world = cast("MirrorWorld", world)
    with world.roles:
        name = _one_that_came(world)
        before = world.topic_id(world.other, name)
        world.say(f"the mirror of {name} is deleted at {world.other}")
        world.remade[world.life(world.other), name] += 1
        _until(lambda: world.delete_topics(world.other, [name]), f"mirror of {name} is deleted")
        known = (None, before)  # a broker may not have heard of its deletion yet
        wait_until(
            lambda: world.topic_id(world.other, name) not in known, f"{name} has a mirror again", bound_s=120
        )
    yield


@contextmanager
def delete_records(world: LinkWorld, step: Step) -> Iterator[None]:
    """Half of what a log has, where it loses its beginning anyhow."""
    world = cast("MirrorWorld", world)
    name = [name for name, each in KEEPS.items() if each.is_tail][step.broker % 2]
    with world.roles, asked():
        tp = TopicPartition(name, step.link % world.written[name])
        low, high = world.watermarks(world.active, tp)
        tp.offset = (low + high) // 2
        world.say(f"records of {name} at {world.active} are deleted up to {tp.offset} ({low} to {high})")
        world.trimmed[name, tp.partition] = world.sent()
        world.admin(world.active).delete_records([tp])[tp].result(30)
    yield


def _one_that_came(world: MirrorWorld) -> str:
    names = [name for name in world.written if name not in KEEPS]
    if not names:
        raise LeftOut("no topic has come yet")
    return names[0]


def _until(work: Callable[[], None], what: str) -> None:
    def done() -> bool:
        try:
            work()
        except KafkaException:
            return False
        return True

    wait_until(done, what, bound_s=120)


FAULTS: Mapping[str, Kind] = {
    **OF_LINKS,
    **{
        kind.__name__: kind
        for kind in (new_topic, more_partitions, delete_topic, delete_mirror, delete_records)
    },
}
assert sum(each.is_tail for each in KEEPS.values()) == 2, "delete_records takes one of both"
assert keeps("load-new-1").is_all, "what comes is kept, so that its mirror can be filled anew"
