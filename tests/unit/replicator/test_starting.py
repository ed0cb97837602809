"""Where partitions begin that a link has never seen: noted at its first start, and when it wants more."""

import json
from types import SimpleNamespace

import pytest

from protocol.client import EARLIEST, PartitionMetadata, TopicMetadata
from protocol.client.errors import ConnectionLostError, NotSupportedError
from protocol.client.mirror_calls import EpochEnd
from protocol.errors import ErrorCode
from protocol.types import TopicPartition, uuid_to_text
from replicator.entry_rows import Entry, rows_of
from replicator.link_rows import NOT_KNOWN_YET, First, initial_row_of, read_initial
from replicator.progress import Progress
from replicator.settings import LinkSettings
from replicator.starting import Start
from transfer.ledger import Lineage, PartitionLedger


class Source:
    """Topics of one partition with log ranges; the leader of those in `silent` does not answer."""

    def __init__(self):
        self.ranges = {}
        self.silent = set()
        self.terms = {}
        self.again = {}

    def id(self, name):
        return self.again.get(name) or bytes(15) + bytes([list(self.ranges).index(name) + 1])

    async def metadata(self, _):
        topics = {}
        for name in self.ranges:
            row = PartitionMetadata(2 if name in self.silent else 1, 7, (1,), (1,))
            topics[name] = TopicMetadata(name, self.id(name), ErrorCode.NONE, False, {0: row})
        return SimpleNamespace(topics=topics)

    async def list_offsets(self, spots, **_):
        if any(tp.topic in self.silent for tp in spots):
            raise ConnectionLostError("broker 2 is away")
        return {
            tp: SimpleNamespace(offset=self.ranges[tp.topic][0 if spot == EARLIEST else 1])
            for tp, spot in spots.items()
        }

    async def epoch_ends(self, wanted, **_):
        if None in self.terms.values():
            raise NotSupportedError("OffsetForLeaderEpoch")
        assert set(wanted.values()) <= {7}
        return {tp: EpochEnd(7, self.terms[tp.topic]) for tp in wanted}


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

    def start(topics, **more):
        told = settings(topics, **more)
        parts = SimpleNamespace(
            source_client=source,
            store=store,
            settings=told,
            naming=told.names(),
            topic_filter=told.topic_filter(),
        )
        return Start(parts, None)

    def noted():
        return {tp.topic: first for tp, first in store.progress.initial.items()}

    async def take_in(topics, **more):
        await start(topics, **more).take_in()
        return noted()

    take_in.start, take_in.noted = start, noted
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


async def test_a_silent_broker_of_the_source_holds_up_its_own_partitions_at_latest(world):
    """They begin where the epoch of then ended, whatever was written before anybody could ask."""
    source, _, take_in = world
    source.silent.add("payments")
    start = take_in.start([".*"], start="latest")
    await start.take_in()
    waiting = First(NOT_KNOWN_YET, uuid_to_text(source.id("payments")), 7)
    assert take_in.noted() == of(source, orders=90) | {"payments": waiting}
    assert waiting.waits(uuid_to_text(source.id("payments")))
    await start.learn()
    assert start.waits
    assert take_in.noted()["payments"] == waiting
    source.silent.clear()
    source.ranges |= {"orders": (3, 95), "payments": (20, 70)}
    source.terms["payments"] = 50
    await start.learn()
    assert take_in.noted() == of(source, orders=90, payments=50)
    assert not start.waits
    source.ranges["payments"] = (20, 90)
    await start.learn()
    assert take_in.noted() == of(source, orders=90, payments=50)


@pytest.mark.parametrize(
    ("term", "committed", "offset"),
    [(-1, 70, 70), (50, 45, 45), (None, 70, 70)],
    ids=["the term is not known", "a transaction is open", "the broker knows no terms"],
)
async def test_where_the_end_of_then_cannot_be_told_it_is_the_one_of_now(world, term, committed, offset):
    source, _, take_in = world
    source.silent.add("payments")
    start = take_in.start(["payments"], start="latest")
    await start.take_in()
    source.silent.clear()
    source.ranges["payments"], source.terms["payments"] = (20, committed), term
    await start.learn()
    assert take_in.noted() == of(source, payments=offset)


async def test_a_topic_made_again_is_not_asked_where_the_one_of_then_ended(world):
    source, _, take_in = world
    source.silent.add("payments")
    start = take_in.start(["payments"], start="latest")
    await start.take_in()
    source.silent.clear()
    source.again["payments"] = bytes(15) + b"\7"
    await start.learn()
    assert not take_in.noted()["payments"].waits(uuid_to_text(source.again["payments"]))
    assert start.waits


def test_a_version_that_does_not_know_of_such_partitions_refuses_the_row():
    """It would copy them from the beginning."""
    at = {TopicPartition("orders", 0): First(90), TopicPartition("orders", 1): First(NOT_KNOWN_YET, epoch=7)}
    _, value = initial_row_of(at, [])
    assert json.loads(value)["initial"] == [["orders", 0, 90], ["orders", 1, NOT_KNOWN_YET, 7]]
    assert read_initial(value) == at
