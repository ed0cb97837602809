"""A follower that copies from a real leader over a socket: real logs, real handlers, no controller."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from broker.log import Log, LogConfig
from broker.replication.acknowledging import Acknowledgements
from protocol.client import Connection
from protocol.errors import ErrorCode
from protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.fetch_request import FetchRequest
from tests.support.lone_broker import lone_broker
from tests.support.two_replicas import BACKOFF_S, FOLLOWER, LEADER, MakeTwo, Two
from tests.support.waiting import eventually


@pytest.fixture
async def make_two(tmp_path: Path) -> AsyncIterator[MakeTwo]:
    async with contextlib.AsyncExitStack() as stack:

        async def make(backoff_s: float = BACKOFF_S, partitions: int = 2, max_wait_ms: int = 200) -> Two:
            home = tmp_path / f"{partitions}"
            broker, topics, port = await stack.enter_async_context(lone_broker(home / "leader"))
            directory = home / "follower"
            directory.mkdir()
            made = Two(broker, topics, port, directory, backoff_s, partitions, max_wait_ms)
            stack.callback(made.logs.close)
            stack.push_async_callback(made.fetchers.close)
            return made

        yield make


@pytest.fixture
async def two(make_two: MakeTwo) -> Two:
    return await make_two()


async def test_a_follower_goes_along_when_its_leader_deletes_all_that_is_readable(two: Two) -> None:
    two.follow()
    two.append(b"a", b"b", b"c")
    await two.copied()
    log = two.leader().log
    # The follower learns of the new high watermark and of the new start with one answer.
    two.leader().watch(lambda size: None if log.start_offset else _delete_all(log))
    two.append(b"d")

    async def start() -> int:
        return two.log().start_offset

    await eventually(start, lambda found: found == 4)
    two.append(b"e")
    await two.copied()


def _delete_all(log: Log) -> None:
    log.delete_before(log.high_watermark)


async def test_a_follower_whose_empty_log_is_ahead_begins_where_its_leader_does(two: Two) -> None:
    two.append(b"a", b"b", b"c")
    two.say(two.replicas, 0, 0)  # not led yet under the leader epoch 1: it is asked for nothing meanwhile
    two.log().truncate_fully(50)
    two.follow()
    await two.copied()
    assert two.log().start_offset == 0, "what it lacks nobody would ever give it again"


async def test_a_follower_that_cannot_be_repaired_does_not_ask_without_pause(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.append(b"a", b"b", b"c")
    two.follow()
    await two.copied()
    # Whatever the leader says of its epochs, what it answers to fetches contradicts it.
    monkeypatch.setattr(Log, "epoch_end_offset", lambda log, epoch: (epoch - 1, 3))
    two.append(b"d")
    two.sent.clear()

    async def asked() -> int:
        return two.sent.count("FetchRequest")

    await eventually(asked, lambda count: count >= 4)
    before, begun = len(two.sent), time.monotonic()
    await eventually(_time_since(begun), lambda passed: passed >= 5 * BACKOFF_S)
    passed = time.monotonic() - begun
    assert len(two.sent) - before <= 4 * (passed / BACKOFF_S + 1), "two or three requests for each pause"


def _time_since(begun: float) -> Callable[[], Awaitable[float]]:
    async def passed() -> float:
        return time.monotonic() - begun

    return passed


async def test_who_hears_of_a_term_before_its_leader_does_not_wait_for_long(make_two: MakeTwo) -> None:
    two = await make_two(backoff_s=600.0)
    two.follow()
    two.append(b"a")
    await two.copied()
    two.say(two.replicas, 2)

    async def refused() -> int:
        return two.sent.count("OffsetForLeaderEpochRequest")

    await eventually(refused, lambda count: count >= 2)
    two.say(two.broker.replicas, 2)
    two.append(b"b")
    await two.copied()


async def test_partitions_follow_a_leader_that_moves(two: Two) -> None:
    two.follow(index=0)
    two.follow(index=1)
    two.append(b"a", index=0)
    two.append(b"a", index=1)
    await two.copied(0)
    await two.copied(1)
    two.host = "localhost"  # another address of the same
    two.follow(leader_epoch=2, index=0)  # of the other one nothing is said
    two.append(b"b", index=0)
    two.append(b"b", index=1)
    await two.copied(0)
    await two.copied(1)
    assert set(two.fetchers.lags()) == {("t", 0), ("t", 1)}


async def test_who_is_told_to_copy_more_does_so_at_once_in_the_same_session(make_two: MakeTwo) -> None:
    """Each of the hundred changes of a planned restart would otherwise have all the others named again."""
    two = await make_two(partitions=3, max_wait_ms=600_000)

    async def ends() -> list[int]:
        return [two.log(index).end_offset for index in range(3) if two.replicas.get("t", index)]

    for index in range(3):
        two.follow(index=index)
        two.append(b"a", index=index)
        await eventually(ends, ([1] * (index + 1)).__eq__)
    two.follow(leader_epoch=2, index=0)
    two.append(b"b", index=0)
    await eventually(ends, lambda found: found == [2, 1, 1])
    assert two.connections == 1
    fetched = two.broker.dispatcher.requests[FetchRequest.API_KEY]
    assert fetched < 20, "a long poll that ends at once, again and again, is none"


async def test_who_is_about_to_stop_copies_on_what_it_does_not_hand_over(two: Two) -> None:
    """It is in the ISR of that: acks=all waits for it, also under the next leader."""
    two.fetchers.follow_no_more([(two.topic_id, 0)])
    two.follow(index=0)
    two.follow(leader_epoch=2, index=1)
    two.append(b"a", index=1)
    await two.copied(1)
    assert set(two.fetchers.lags()) == {("t", 1)}


async def test_a_follower_of_one_partition_no_more_follows_the_others(two: Two) -> None:
    for index in (0, 1):
        two.follow(index=index)
        two.append(b"a", index=index)
        await two.copied(index)
    two.sent.clear()

    async def fetches() -> int:
        return two.sent.count("FetchRequest")

    await eventually(fetches, lambda count: count >= 2)  # both stand still in a session
    connections = two.connections
    two.leader(0).lead(LEADER, 1, (LEADER,), (LEADER,), 2)
    two.append(b"b", index=1)
    await two.copied(1)
    two.sent.clear()
    await eventually(fetches, lambda count: count >= 2)
    assert two.connections == connections, "the request was answered, with an error for one partition"


async def test_a_follower_says_that_it_has_what_is_on_its_disk_where_that_is_asked_for(two: Two) -> None:
    two.config = LogConfig(flush_messages=1)
    flushed_in: set[int] = set()
    two.follow()
    log = two.log()
    flush = log.flush_due_appends

    def watched() -> None:
        flushed_in.add(threading.get_ident())
        assert two.leader().in_sync.followers[FOLLOWER].end_offset < log.end_offset
        flush()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, "flush_due_appends", lambda _: watched())
        two.append(b"a", b"b")
        await two.copied()

        async def on_disk() -> int:
            return log.recovery_point

        await eventually(on_disk, lambda end: end == 2)  # its leader, alone at first, does not wait for that
    assert flushed_in
    assert threading.get_ident() not in flushed_in, "the event loop does not wait for the disk"


async def test_a_leader_that_cannot_be_reached_is_not_called_without_pause(two: Two) -> None:
    two.append(b"a")
    there, two.port = two.port, 1  # nobody
    begun = time.monotonic()
    two.follow()
    await eventually(_time_since(begun), lambda passed: passed >= 5 * BACKOFF_S)
    assert two.calls <= 2 + (time.monotonic() - begun) / BACKOFF_S
    two.port = there
    two.follow(leader_epoch=2)
    await two.copied()


async def test_records_are_deleted_when_every_in_sync_replica_has_let_go_of_them(two: Two) -> None:
    two.follow()
    two.append(b"a", b"b", b"c")
    await two.copied()
    assert FOLLOWER in two.leader().in_sync.maximal
    request = DeleteRecordsRequest(
        timeout_ms=60_000,
        topics=[DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(offset=2)])],
    )
    client = await Connection.open("127.0.0.1", two.port)
    try:
        answer = await client.send(request)
        [result] = answer.topics[0].partitions
        assert (result.error_code, result.low_watermark) == (0, 2)
        assert two.log().start_offset == 2
        await two.fetchers.close()
        request.topics[0].partitions[0].offset, request.timeout_ms = 3, 50
        [result] = (await client.send(request)).topics[0].partitions
        assert (result.error_code, result.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 2)
    finally:
        await client.close()


async def calls(two: Two, count: int) -> int:
    """Of Python functions, for a few records until their follower has them and its leader knows: the least of
    several times, because timers come in between.
    """
    for index in range(count):
        two.follow(index=index)
        two.append(b"a", index=index)

    async def members() -> list[bool]:
        return [FOLLOWER in two.leader(index).in_sync.maximal for index in range(count)]

    await eventually(members, all)
    counted = 0

    def count_call(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    found = []
    leader = two.leader(0)
    for _ in range(8):
        counted = 0
        sys.setprofile(count_call)
        try:
            for _ in range(5):
                two.append(b"b", index=0)
                answers = Acknowledgements()
                leader.line_up(leader.log.end_offset - 1, answers)
                assert await answers.wait(60.0) == [ErrorCode.NONE]
        finally:
            sys.setprofile(None)
        found.append(counted)
    return min(found)


async def test_what_an_append_costs_does_not_grow_with_the_partitions_that_stand_still(
    make_two: MakeTwo,
) -> None:
    few = await calls(await make_two(partitions=2), 2)
    many = await calls(await make_two(partitions=200), 200)
    assert many < 1.5 * few, "calls of both sides together"
