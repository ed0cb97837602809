"""Where partitions begin that a link has never seen: noted at its first start, and when it wants more."""

from types import SimpleNamespace

import pytest

from protocol.client import EARLIEST, PartitionMetadata, TopicMetadata
from protocol.client.errors import ConnectionLostError
from protocol.errors import ErrorCode
from protocol.types import uuid_to_text
from replicator.entry_rows import Entry, rows_of
from replicator.link_rows import First, initial_row_of
from replicator.progress import Progress
from replicator.settings import LinkSettings
from replicator.starting import Start
from transfer.ledger import Lineage, PartitionLedger


class Source:
    """Topics of one partition with log ranges; the leader of those in `silent` does not answer."""

    def __init__(self):
        self.ranges = {}
        self.silent = set()

    def id(self, name):
        return bytes(15) + bytes([list(self.ranges).index(name) + 1])

    async def metadata(self, _):
        topics = {}
        for name in self.ranges:
            row = PartitionMetadata(2 if name in self.silent else 1, 0, (1,), (1,))
            topics[name] = TopicMetadata(name, self.id(name), ErrorCode.NONE, False, {0: row})
        return SimpleNamespace(topics=topics)

    async def list_offsets(self, spots, **_):
        if any(tp.topic in self.silent for tp in spots):
            raise ConnectionLostError("broker 2 is away")
        return {
            tp: SimpleNamespace(offset=self.ranges[tp.topic][0 if spot == EARLIEST else 1])
            for tp, spot in spots.items()
        }


class Store:
    def __init__(self):
        self.progress = Progress()

    async def save_initial(self, initial, asked):
        self.progress.apply([initial_row_of(initial, asked)])

    async def refresh(self):
        return self.progress


def settings(topics, **more):
    ends = {"source": {"alias": "east", "bootstrap": "e:1"}, "target": {"alias": "west", "bootstrap": "w:1"}}
    return LinkSettings.model_validate({**ends, "topics": topics, **more})


@pytest.fixture
def world():
    source, store = Source(), Store()
    source.ranges = {"orders": (3, 90), "payments": (20, 50)}

    async def take_in(topics, **more):
        told = settings(topics, **more)
        parts = SimpleNamespace(
            source_client=source,
            store=store,
            settings=told,
            naming=told.names(),
            topic_filter=told.topic_filter(),
        )
        await Start(parts, None).take_in()
        return {tp.topic: first for tp, first in store.progress.initial.items()}

    return source, store, take_in


def of(source, **offsets):
    return {name: First(offset, uuid_to_text(source.id(name))) for name, offset in offsets.items()}


@pytest.mark.parametrize(("start", "offset"), [("earliest", 3), ("latest", 90)])
async def test_the_first_start_notes_where_partitions_begin_and_of_which_topics(world, start, offset):
    source, _, take_in = world
    assert await take_in(["orders"], start=start) == of(source, orders=offset)
    source.ranges["orders"] = (10, 100)
    assert await take_in(["orders"], start=start) == of(source, orders=offset)  # once


@pytest.mark.parametrize(("start", "offset"), [("earliest", 20), ("latest", 50)])
async def test_a_topic_that_is_wanted_later_is_an_old_one_and_one_born_since_is_not(world, start, offset):
    """Else what retention took from it, before anybody wanted it, is told as a gap."""
    source, _, take_in = world
    first = await take_in(["orders.*"], start=start)
    source.ranges["orders-2"] = (5, 9)
    noted = await take_in(["orders.*", "payments"], start=start)
    assert noted == first | of(source, payments=offset)
    assert await take_in(["orders.*"], start=start) == noted


async def test_a_link_that_was_begun_by_an_older_version_takes_nothing_for_old(world):
    _, store, take_in = world
    store.progress.apply([(b"link", b'{"initial":[["orders",0,-1]]}')])
    assert await take_in(["orders", "payments"], start="latest") == {"orders": First(-1)}


async def test_what_has_progress_is_not_noted(world):
    source, store, take_in = world
    await take_in(["orders"])
    entry = Entry(PartitionLedger(Lineage("c", "s", "payments", 0), Lineage("c", "t", "east.payments", 0)))
    store.progress.apply(rows_of(entry)[0])
    assert await take_in(["payments"]) == of(source, orders=3)


async def test_a_silent_broker_of_the_source_holds_up_no_start_at_earliest(world):
    source, _, take_in = world
    source.silent.add("payments")
    assert await take_in([".*"]) == of(source, orders=3, payments=-1)


async def test_a_start_at_latest_waits_for_all(world):
    source, store, take_in = world
    source.silent.add("payments")
    with pytest.raises(ConnectionLostError):
        await take_in([".*"], start="latest")
    assert store.progress.initial is None
    source.silent.clear()
    assert await take_in([".*"], start="latest") == of(source, orders=90, payments=50)
