"""What a copy says of its partitions: arrived, on the way, or standing still for a reason that lasts."""

from types import SimpleNamespace

import pytest

from protocol.client import LATEST
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from replicator import copy_watch, copying
from replicator.acknowledgements import Difference, Kind
from replicator.book import Account, State
from replicator.copy_watch import Watch
from replicator.discovery import Found
from replicator.entry_rows import Entry
from transfer.ledger import Lineage, PartitionLedger
from transfer.offset_map import OffsetMap

TP = TopicPartition("orders", 0)
GAP = Difference(TP, Kind.GAP, 3, 5, "retention", 1)
SUPERSEDED = Difference(TP, Kind.SUPERSEDED, 7, 9, "truncated", 1)


def watch(position=5, end=10, topic_id="t1", differences=(), problems=None, silent=None, **account):
    ledger = PartitionLedger(Lineage("c1", topic_id, *TP), Lineage("c2", "t9", *TP), OffsetMap(position, 0))
    found = {}
    if position >= 0:
        found[TP] = Account(TP, TP, None, Entry(ledger), **{"state": State.RUNNING, **account})
    link = SimpleNamespace(
        accounts=found,
        topic_problems=problems or {},
        found=Found({"orders": None} if position >= 0 or problems else {}),
        open_differences=lambda: differences,
    )
    return Watch({TP: end}, {}, {"orders": "t1"}, SimpleNamespace(link=link), silent or {})


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """What `time.monotonic` says."""
    now = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(copy_watch.time, "monotonic", lambda: now.s)
    return now


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (State.REFUSED, "MESSAGE_TOO_LARGE"),
        (State.GONE, "deleted: it is gone"),
        (State.WAITING, "failed: TOPIC_AUTHORIZATION_FAILED: no READ"),
    ],
)
def test_what_waiting_does_not_cure_ends_a_copy_at_once(state, reason):
    looked = watch(state=state, reason=reason)
    assert looked.done()
    result = looked.result(0, until_now=True)
    assert (result.code, result.left) == (3, {"orders-0": reason})


def test_what_waiting_cures_is_waited_for(clock):
    looked = watch(state=State.WAITING, reason="retention: passed", source_end=10)
    clock.s += 1e6
    assert not looked.done()
    assert looked.result(3, until_now=True).code == 1  # stopped before it had arrived


@pytest.mark.parametrize("state", [State.REFUSED, State.GONE])
def test_what_had_arrived_before_it_stood_still_is_copied(state):
    result = watch(10, state=state, reason="what came later").result(3, until_now=True)
    assert (result.code, result.left, result.arrived) == (0, {}, True)


def test_a_source_that_has_lost_its_end_is_waited_for_a_while_only(clock):
    looked = watch(7, source_end=7)
    assert not looked.done()
    clock.s += copy_watch._GIVE_UP_END_S + 1
    assert looked.done()
    assert "ended at offset 10 before and ends at 7 now" in looked.left()["orders-0"]
    behind = watch(6, source_end=7)
    behind.done()
    clock.s += 1e6
    assert not behind.done()


@pytest.mark.parametrize("problems", [{}, {"orders": "no brokers for it"}])
def test_a_topic_without_an_account_is_waited_for_a_while_only(clock, problems):
    looked = watch(-1, problems=problems)
    assert not looked.done()
    clock.s += copy_watch._GIVE_UP_TOPIC_S + 1
    assert looked.left() == {"orders-0": problems.get("orders", "it is not at the source any more")}


def test_an_empty_partition_has_arrived():
    assert watch(0, 0).result(0, until_now=True).code == 0


@pytest.mark.parametrize("until_now", [True, False])
def test_gaps_of_all_kinds_are_named(until_now):
    result = watch(10, differences=[GAP, SUPERSEDED]).result(3, until_now=until_now)
    assert result.code == 3
    assert result.gaps["orders-0"] == [
        "gap 3..5 (retention)",
        "copies at the target of what the source has lost: 7..9 (truncated)",
    ]


def test_a_copy_without_an_end_says_what_stands_still():
    refused = watch(state=State.REFUSED, reason="too large").result(3, until_now=False)
    assert (refused.code, refused.left) == (3, {"orders-0": "too large"})
    unmade = watch(-1, problems={"orders": "no brokers for it"}).result(0, until_now=False)
    assert (unmade.code, unmade.left) == (3, {"orders": "no brokers for it"})
    gone = watch(10, state=State.GONE, reason="deleted", source_end=10).result(0, until_now=False)
    assert (gone.code, gone.left) == (0, {})
    lost = watch(5, state=State.GONE, reason="deleted", source_end=10).result(0, until_now=False)
    assert (lost.code, lost.left) == (3, {"orders-0": "deleted"})


async def test_a_partition_without_a_leader_keeps_no_other_from_being_copied(monkeypatch):
    monkeypatch.setattr(copying, "_LOOK_S", 0.0)
    other, asked = TopicPartition("orders", 1), []

    async def list_offsets(spots, **_):
        asked.append(spots)
        if other in spots:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        return {tp: SimpleNamespace(offset=10 if at == LATEST else 2) for tp, at in spots.items()}

    first, ends, silent = await copying._ranges(SimpleNamespace(list_offsets=list_offsets), [TP, other])
    assert (first, ends, list(silent)) == ({TP: 2}, {TP: 10}, [other])
    assert "LEADER_NOT_AVAILABLE" in silent[other]
    assert asked.count({other: LATEST}) == copying._TRIES
    looked = watch(10, silent=silent)
    assert looked.done()
    result = looked.result(0, until_now=True)
    assert (result.code, result.left) == (3, {"orders-1": silent[other]})


def test_a_link_that_failed_has_failed():
    failed = watch(10).result(1, until_now=True)
    assert (failed.code, failed.failed) == (1, True)
    stopped = watch().result(0, until_now=True)
    assert (stopped.code, stopped.failed) == (1, False)
