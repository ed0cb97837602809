"""The faults of a run of mirrors: those of links; topics come and grow at the side that is written to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from confluent_kafka import KafkaException

from tests.chaos.claims import LeftOut
from tests.chaos.links.faults import FAULTS as OF_LINKS
from tests.chaos.links.faults import MOST_PARTITIONS, MOST_TOPICS, Kind, asked
from tests.chaos.links.schedule import Step
from tests.chaos.links.world import LinkWorld
from tests.chaos.mirrors.world import MirrorWorld
from tests.support.waiting import wait_until

_numbers = itertools.count(1)


@contextmanager
def new_topic(world: LinkWorld, step: Step) -> Iterator[None]:
    """Roles are changed by topic, so nobody writes to it before it has a mirror."""
    world = cast("MirrorWorld", world)
    if len(world.written) >= MOST_TOPICS:
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
    name = list(world.written)[step.broker % len(world.written)]
    count = world.written[name] + 1
    if count > MOST_PARTITIONS:
        raise LeftOut("there are enough partitions")
    with world.roles:
        world.say(f"{name} at {world.active} grows to {count} partitions")
        with asked():
            world.grow_topic(world.active, name, count)
        world.written = {**world.written, name: count}
    yield


FAULTS: Mapping[str, Kind] = {**OF_LINKS, "new_topic": new_topic, "more_partitions": more_partitions}
