"""Fetch: what is read, how long it waits, which limits hold, in every version."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import warnings
from pathlib import Path
from typing import Any

import pytest

from broker.log import LogSlice, NotCached, StorageFailed
from broker.log.log_view import LogView
from broker.server.dispatch import LARGE
from broker.server.edge import Connection as ServedConnection
from broker.server.fetch_pass import READ_IN_A_TURN
from protocol.client.errors import ConnectionLostError
from protocol.errors import ErrorCode
from protocol.frames import encode_request
from protocol.messages.fetch_request import FetchRequest, ForgottenTopic
from protocol.records import decode_batches
from tests.support.lone_broker import BROKER_ID
from tests.support.served import Served, batch

VERSIONS = range(4, 18)
ELSEWHERE = 2
NOBODY = -1
SOON_S = 5.0


def values(records: memoryview) -> list[bytes | None]:
    return [record.value for record in decode_batches(records)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_reads_and_refuses_in_its_own_shape(node: Served, version: int) -> None:
    node.topics.create("t")
    node.topics.create("moved", leader=ELSEWHERE)
    await node.produce("t", batch(b"a", b"b"))
    await node.produce("t", batch(b"c"))
    found = await node.fetch("t", 0, version=version)
    assert values(found.records) == [b"a", b"b", b"c"]
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 3, 3)
    assert found.aborted_transactions is None
    committed = await node.fetch("t", 0, version=version, isolation_level=1)
    assert committed.aborted_transactions == []
    assert bytes(committed.records) == bytes(found.records)
    moved = await node.fetch("moved", 0, version=version)
    # Followers serve consumers that may have been sent to them, from v11 on (KIP-392).
    assert moved.error_code == (0 if version >= 11 else ErrorCode.NOT_LEADER_OR_FOLLOWER)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await node.fetch("nowhere", 0, version=version)).error_code == unknown
    beyond = await node.fetch("t", 4, version=version)
    # Nothing about where the log is, as in Kafka: clients ask ListOffsets.
    assert (beyond.error_code, beyond.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert beyond.last_stable_offset == -1


@pytest.mark.parametrize("isolation", [0, 1])
async def test_the_stable_offset_is_a_real_one_on_an_empty_partition(node: Served, isolation: int) -> None:
    node.topics.create("t")
    found = await node.fetch("t", 0, isolation_level=isolation)
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (0, 0, 0)
    assert found.records == b""


async def test_an_offset_inside_a_batch_returns_the_whole_batch(node: Served) -> None:
    node.topics.create("t")
    await node.produce("t", batch(b"a", b"b", b"c"))
    await node.produce("t", batch(b"d"))
    assert values((await node.fetch("t", 1)).records) == [b"a", b"b", b"c", b"d"]
    assert values((await node.fetch("t", 3)).records) == [b"d"]


async def test_at_least_one_batch_comes_whatever_the_limits(node: Served) -> None:
    node.topics.create("t", 3)
    big = b"x" * 5000
    for partition in range(3):
        await node.produce("t", batch(big), partition)
        await node.produce("t", batch(big), partition)
    request = node.fetch_request("t", 0, (0, 1, 2), max_bytes=100, partition_max_bytes=10)
    answer = await node.fetch_all(request)
    assert [len(values(part.records)) for part in answer.responses[0].partitions] == [1, 0, 0]
    roomy = node.fetch_request("t", 0, (0, 1, 2), max_bytes=11_000, partition_max_bytes=6000)
    answer = await node.fetch_all(roomy)
    assert [len(values(part.records)) for part in answer.responses[0].partitions] == [1, 1, 0]


async def test_the_partition_limit_returns_whole_batches_only(node: Served) -> None:
    node.topics.create("t")
    for _ in range(10):
        await node.produce("t", batch(b"y" * 1000))
    found = await node.fetch("t", 0, partition_max_bytes=3500)
    assert len(values(found.records)) == 3


async def waits(task: asyncio.Task[object]) -> bool:
    """Whether the request is still waiting after others of the same broker were answered."""
    await asyncio.sleep(0.05)
    return not task.done()


async def test_an_append_wakes_a_waiting_reader(node: Served) -> None:
    node.topics.create("t", 2)
    request = node.fetch_request("t", 0, (0, 1), max_wait_ms=60_000)
    async with node.another() as reader:
        task = asyncio.create_task(reader.send(request, 17))
        assert await waits(task)
        await node.produce("t", batch(b"news"), 1)
        answer = await asyncio.wait_for(task, SOON_S)
    assert [values(part.records) for part in answer.responses[0].partitions] == [[], [b"news"]]
    assert not node.broker.replicas.leader("t", 0)._watchers


async def test_min_bytes_is_waited_for(node: Served) -> None:
    node.topics.create("t")
    await node.produce("t", batch(b"z" * 1000))
    request = node.fetch_request("t", 0, min_bytes=2500, max_wait_ms=60_000)
    async with node.another() as reader:
        task = asyncio.create_task(reader.send(request, 17))
        assert await waits(task)
        await node.produce("t", batch(b"z" * 1000))
        assert await waits(task)
        await node.produce("t", batch(b"z" * 1000))
        answer = await asyncio.wait_for(task, SOON_S)
    assert len(values(answer.responses[0].partitions[0].records)) == 3


async def test_max_wait_ends_the_waiting_with_what_is_there(node: Served) -> None:
    node.topics.create("t")
    await node.produce("t", batch(b"few"))
    started = node.broker.clock.monotonic()
    found = await node.fetch("t", 0, min_bytes=1 << 20, max_wait_ms=120)
    assert values(found.records) == [b"few"]
    assert node.broker.clock.monotonic() - started >= 0.115


async def test_losing_the_leadership_or_the_topic_answers_waiting_readers(node: Served) -> None:
    kept = node.topics.create("kept")
    node.topics.create("gone")
    async with node.another() as one, node.another() as two:
        request = node.fetch_request("kept", 0, max_wait_ms=60_000)
        moved = asyncio.create_task(one.send(request, 17))
        deleted = asyncio.create_task(two.send(node.fetch_request("gone", 0, max_wait_ms=60_000), 17))
        assert await waits(moved)
        assert await waits(deleted)
        node.topics.lead("kept", kept, range(1), NOBODY, leader_epoch=1, version=1)
        node.topics.delete("gone")
        first = (await asyncio.wait_for(moved, SOON_S)).responses[0].partitions[0]
        second = (await asyncio.wait_for(deleted, SOON_S)).responses[0].partitions[0]
    assert first.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert first.current_leader is None, "the cache does not know a living leader"
    assert second.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


async def test_a_reader_that_hangs_up_leaves_nothing_behind(node: Served) -> None:
    node.topics.create("t")
    partition = node.broker.replicas.leader("t", 0)
    async with node.another() as reader:
        task = asyncio.create_task(reader.send(node.fetch_request("t", 0, max_wait_ms=60_000), 17))
        while not partition._watchers:
            await asyncio.sleep(0.002)
    with pytest.raises(ConnectionLostError):
        await task
    async with asyncio.timeout(SOON_S):
        while partition._watchers:
            await asyncio.sleep(0.002)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (3, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_leader_epochs_are_checked_from_version_9(node: Served, epoch: int, code: ErrorCode) -> None:
    topic_id = node.topics.create("t")
    node.topics.lead("t", topic_id, range(1), BROKER_ID, leader_epoch=3, version=1)
    for version in (9, 12, 16, 17):
        found = await node.fetch("t", 0, version=version, current_leader_epoch=epoch)
        assert found.error_code == code
        if version >= 12 and code == ErrorCode.FENCED_LEADER_EPOCH:
            assert found.current_leader.leader_epoch == 3


async def test_an_incremental_session_that_was_never_given_is_refused(node: Served) -> None:
    node.topics.create("t")
    answer = await node.fetch_all(FetchRequest(session_id=77, session_epoch=3), 12)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    declined = await node.fetch_all(node.fetch_request("t", 0, version=12, session_epoch=-1), 12)
    assert (declined.error_code, declined.session_id) == (0, 0)


async def test_uncached_data_is_read_in_a_thread_and_arrives_whole(node: Served, tmp_path: Path) -> None:
    node.topics.create("t", 3)
    sent = [os.urandom(700_000) for _ in range(6)]
    for number, value in enumerate(sent):
        await node.produce("t", batch(value), number % 3)
    for partition in range(3):
        path = next((tmp_path / "data" / f"t-{partition}").glob("*.log"))
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    answer = await node.fetch_all(node.fetch_request("t", 0, (0, 1, 2), partition_max_bytes=2 << 20))
    read = [values(part.records) for part in answer.responses[0].partitions]
    if not node.broker.disk_readers._threads:
        pytest.skip("this file system keeps everything in memory")
    assert read == [[sent[0], sent[3]], [sent[1], sent[4]], [sent[2], sent[5]]]


def damage(node: Served, topic: str, position: int, content: bytes) -> None:
    """Overwrite bytes of partition 0's segment file, as a bad disk would."""
    os.pwrite(node.broker.replicas.leader(topic, 0).log.segments.active.file.fd, content, position)


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize(("position", "content"), [(8, b"\xff\xff\xff\x00"), (8, b"\0\0\0\5"), (16, b"\x09")])
async def test_a_damaged_batch_is_its_partitions_trouble_alone(
    node: Served, position: int, content: bytes, cold: bool, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    node.topics.create("t", 2)
    for partition in (0, 1):
        await node.produce("t", batch(b"x" * 100), partition)
    damage(node, "t", position, content)
    if cold:
        only_blocking(monkeypatch)
    for _ in range(2):
        answer = await node.fetch_all(node.fetch_request("t", 0, (0, 1)))
        bad, good = answer.responses[0].partitions
        assert (bad.error_code, bad.records) == (ErrorCode.CORRUPT_MESSAGE, b"")
        assert values(good.records) == [b"x" * 100]
    assert node.broker.metrics.topic("t").failed_fetch == 2
    said = [record for record in caplog.records if "no batch starts at byte 0" in record.getMessage()]
    assert len(said) == 1  # once, however often it is asked for
    assert not said[0].exc_info


async def test_many_partitions_with_data_are_read_in_turns(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * READ_IN_A_TURN + 5
    node.topics.create("t", count)
    for partition in range(count):
        await node.produce("t", batch(b"%d" % partition), partition)
    read, reads = LogView.read, 0

    def counted(self: LogView, *arguments: Any, **options: Any) -> LogSlice:
        nonlocal reads
        reads += 1
        return read(self, *arguments, **options)

    monkeypatch.setattr(LogView, "read", counted)
    asked = asyncio.create_task(node.fetch_all(node.fetch_request("t", 0, range(count))))
    seen, most = 0, 0
    while not asked.done():
        await asyncio.sleep(0)
        seen, most = reads, max(most, reads - seen)
    answer = await asked
    assert reads == count
    assert 0 < most <= READ_IN_A_TURN
    (topic,) = answer.responses
    assert [values(each.records) for each in topic.partitions] == [[b"%d" % n] for n in range(count)]


async def test_a_disk_that_fails_a_cold_read_is_its_partitions_trouble_alone(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.topics.create("t", 2)
    for partition in (0, 1):
        await node.produce("t", batch(b"x" * 100), partition)
    only_blocking(monkeypatch, fails="t-0")
    answer = await node.fetch_all(node.fetch_request("t", 0, (0, 1)))
    bad, good = answer.responses[0].partitions
    assert (bad.error_code, bad.records) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
    assert values(good.records) == [b"x" * 100]


def only_blocking(monkeypatch: pytest.MonkeyPatch, fails: str = "") -> None:
    """Nothing is in the page cache; reading the partition `fails` ends with an I/O error."""
    read = LogView.read

    def without_cache(self: LogView, *arguments: Any, blocking: bool = False) -> LogSlice:
        if not blocking:
            raise NotCached
        if fails and self.directory.endswith(fails):
            raise StorageFailed(f"{self.directory} cannot be read")
        return read(self, *arguments, blocking=True)

    monkeypatch.setattr(LogView, "read", without_cache)


async def test_a_large_request_that_waits_for_what_then_is_on_the_disk_alone(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.topics.create("t")
    only_blocking(monkeypatch)
    settle = ServedConnection._settle
    outcomes: list[str] = []

    def noted(self: ServedConnection, answer: Any, outcome: Any) -> None:
        outcomes.append(type(outcome).__name__)
        settle(self, answer, outcome)

    monkeypatch.setattr(ServedConnection, "_settle", noted)
    forgotten = [ForgottenTopic(topic="t", partitions=list(range(LARGE // 4)))]
    request = node.fetch_request(
        "t", 0, version=12, max_wait_ms=60_000, session_epoch=-1, forgotten_topics_data=forgotten
    )
    async with node.another() as reader, asyncio.timeout(SOON_S):
        asked = asyncio.create_task(reader.send(request, 12))
        while not node.broker.replicas.leader("t", 0)._watchers:
            await asyncio.sleep(0.01)
        await node.produce("t", batch(b"news"))
        answer = await asked
    assert values(answer.responses[0].partitions[0].records) == [b"news"]
    assert outcomes == ["_Waiting", "Pending", "list"], "nothing that has begun is left to the edge"


async def test_a_client_that_goes_away_just_after_a_long_fetch_leaves_nothing_behind(node: Served) -> None:
    """The task is cancelled before its first step: what it would have awaited has to be ended by hand."""
    node.topics.create("t")
    request = node.fetch_request("t", 0, version=11, max_wait_ms=60_000, min_bytes=1 << 20)
    frame = b"".join(bytes(part) for part in encode_request(request, 11, 1, "gone"))
    listener = node.broker.listeners["PLAINTEXT"]
    ours, theirs = socket.socketpair()
    with theirs, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        transport, connection = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: ServedConnection(listener, node.broker.dispatcher.serve, 1 << 20), ours
        )
        transport.abort()  # the loop says so to the connection before it starts what comes now
        connection.get_buffer(-1)[: len(frame)] = frame
        connection.buffer_updated(len(frame))
        assert connection.waiting
        async with asyncio.timeout(SOON_S):
            while connection in listener.connections or listener._tasks:
                await asyncio.sleep(0)
        del connection, transport
        gc.collect()
    assert [str(each.message) for each in caught] == []
