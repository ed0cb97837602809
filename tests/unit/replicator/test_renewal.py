"""New mirrors against a target in memory: what is noted before one is made, what is left alone meanwhile."""

import pytest

from protocol.client import PartitionMetadata, TopicMetadata
from protocol.errors import ErrorCode, KafkaError
from protocol.types import uuid_to_text
from replicator import mirror_rows
from replicator.discovery import discover
from replicator.filters import TopicFilter
from replicator.naming import Naming
from replicator.progress import Progress
from replicator.renewal import Renewal

NAMING = Naming("east", "west")


def topic(name, number):
    return TopicMetadata(
        name, bytes([number]) * 16, ErrorCode.NONE, False, {0: PartitionMetadata(1, 0, (1,), (1,))}
    )


class Target:
    """Says whether a name is free, as the controller does."""

    def __init__(self):
        self.being_deleted = set()

    async def create_topics(self, topics, *, validate_only):
        assert validate_only
        for one in topics:
            if one.name in self.being_deleted:
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, one.name)


class Store:
    def __init__(self):
        self.progress = Progress()

    async def save_mirrors(self, mirrors):
        self.progress.apply([mirror_rows.row_of(*item) for item in mirrors.items()])

    async def refresh(self):
        return self.progress


class World:
    def __init__(self):
        self.target, self.store = Target(), Store()
        self.renewal = Renewal(self.target, self.store, NAMING, new_mirrors=True)

    def look(self, source, there):
        here = {"orders": topic("orders", source)}
        taken = TopicFilter(NAMING, ["orders"], [])
        return discover(here, there, taken, NAMING, self.renewal.names())

    async def settle(self, source, there):
        """As the leader does in one look: the topic as it may be copied, and whether it may be made."""
        found = self.look(source, there)
        if await self.renewal.settle(found, there):
            found = self.look(source, there)
        wanted = found.wanted["orders"]
        return self.renewal.may_make(wanted), self.renewal.hold_back(found).wanted["orders"]


@pytest.fixture
def world():
    return World()


async def test_nothing_is_copied_before_the_mirror_of_today_is_noted(world):
    made, wanted = await world.settle(1, {})
    assert (made, wanted.target_name, wanted.target) == (True, "east.orders", None)
    there = {"east.orders": topic("east.orders", 11)}
    assert world.renewal.hold_back(world.look(1, there)).wanted["orders"].target is None  # another worker
    _, wanted = await world.settle(1, there)
    assert wanted.target == there["east.orders"]
    held = world.renewal.hold_back(world.look(2, there)).wanted["orders"]  # the source's was made again
    assert held.target is None
    made, wanted = await world.settle(2, there)
    assert (made, wanted.target_name, wanted.target) == (True, "east.orders.mirror-2", None)
    there["east.orders.mirror-2"] = topic("east.orders.mirror-2", 12)
    _, wanted = await world.settle(2, there)
    assert wanted.target == there["east.orders.mirror-2"]


async def test_a_mirror_that_is_being_deleted_is_not_made_again(world):
    there = {"east.orders": topic("east.orders", 11)}
    await world.settle(1, there)
    world.target.being_deleted.add("east.orders")
    made, wanted = await world.settle(1, {})
    assert (made, wanted.target_name, wanted.target) == (False, "east.orders", None)
    assert world.store.progress.mirrors["orders"].target_id == uuid_to_text(bytes([11]) * 16)
    world.target.being_deleted.clear()
    made, wanted = await world.settle(1, {})
    assert (made, wanted.target_name) == (True, "east.orders.mirror-2")


async def test_without_the_policy_the_current_names_stay(world):
    there = {"east.orders": topic("east.orders", 11)}
    await world.settle(1, there)
    await world.settle(2, there)
    world.renewal = Renewal(world.target, world.store, NAMING, new_mirrors=False)
    made, wanted = await world.settle(3, there)
    assert (made, wanted.target_name) == (True, "east.orders.mirror-2")
