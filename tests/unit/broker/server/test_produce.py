"""Produce: what is stored, what is refused and with which code, in every version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.control.internal_topics import TRANSACTIONS_TOPIC
from broker.log import Log
from protocol.client.errors import ConnectionLostError
from protocol.errors import ErrorCode
from protocol.messages.metadata_request import MetadataRequest
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import Codec, decode_batches
from tests.support.lone_broker import BROKER_ID
from tests.support.served import Served, batch

VERSIONS = range(3, 12)
ELSEWHERE = 2


@pytest.mark.parametrize("version", VERSIONS)
async def test_batches_get_offsets_in_order(node: Served, version: int) -> None:
    acks = 1 if version % 2 else -1
    node.topics.create("t")
    first = await node.produce("t", batch(b"a", b"b"), acks=acks, version=version)
    second = await node.produce("t", batch(b"c"), acks=acks, version=version)
    assert (first.error_code, first.base_offset) == (ErrorCode.NONE, 0)
    assert (second.error_code, second.base_offset) == (ErrorCode.NONE, 2)
    assert first.log_append_time_ms == -1, "the topic keeps the producer's times"
    if version >= 5:
        assert first.log_start_offset == 0
    stored = await node.fetch("t", 0)
    assert [(r.offset, r.value) for r in decode_batches(stored.records)] == [(0, b"a"), (1, b"b"), (2, b"c")]


async def test_log_append_time_is_told(node: Served) -> None:
    node.topics.create("t", message_timestamp_type="LogAppendTime")
    answer = await node.produce("t", batch(b"a"))
    assert abs(answer.log_append_time_ms - node.broker.clock.now_ms()) < 60_000


def broken_crc() -> bytes:
    bad = bytearray(batch(b"x" * 50))
    bad[-1] ^= 1
    return bytes(bad)


def of_magic(magic: int) -> bytes:
    old = bytearray(batch(b"x" * 50))
    old[16] = magic
    return bytes(old)


@pytest.mark.parametrize(
    ("topic", "records", "acks", "code"),
    [
        ("nowhere", batch(b"x"), 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("moved", batch(b"x"), 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("__consumer_offsets", batch(b"x"), 1, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("t", batch(b"x"), 2, ErrorCode.INVALID_REQUIRED_ACKS),
        ("t", of_magic(1), 1, ErrorCode.INVALID_RECORD),
        ("t", batch(b"x") + batch(b"y"), 1, ErrorCode.INVALID_RECORD),
        ("t", b"", 1, ErrorCode.INVALID_RECORD),
        ("t", None, 1, ErrorCode.INVALID_RECORD),
        ("t", batch(b"x")[:-1], 1, ErrorCode.INVALID_RECORD),
        ("t", broken_crc(), 1, ErrorCode.CORRUPT_MESSAGE),
        ("t", batch(b"x" * 2000), 1, ErrorCode.MESSAGE_TOO_LARGE),
        ("careful", batch(b"x"), -1, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_refusals_keep_the_version_s_shape(
    node: Served, topic: str, records: bytes | None, acks: int, code: ErrorCode
) -> None:
    node.topics.create("t", max_message_bytes=1000)
    node.topics.create("moved", leader=ELSEWHERE)
    node.topics.create("careful", min_insync_replicas=2)
    node.topics.create("__consumer_offsets")
    for version in VERSIONS:
        answer = await node.produce(topic, records, acks=acks, version=version)
        assert (answer.error_code, answer.base_offset) == (code, -1)
        assert bool(answer.error_message) == (version >= 8)
    assert (await node.produce("t", batch(b"fine"))).base_offset == 0, "nothing was stored"


@pytest.mark.parametrize(
    ("version", "code"), [(6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode.NONE)]
)
async def test_zstd_needs_version_7(node: Served, version: int, code: ErrorCode) -> None:
    node.topics.create("t")
    answer = await node.produce("t", batch(b"x" * 500, codec=Codec.ZSTD), version=version)
    assert answer.error_code == code


async def test_one_bad_partition_does_not_stop_the_others(node: Served) -> None:
    node.topics.create("t", 3)
    data = [(0, batch(b"a")), (1, broken_crc()), (2, batch(b"b"))]
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[PartitionProduceData(index=i, records=records) for i, records in data],
            ),
            TopicProduceData(
                name="nowhere", partition_data=[PartitionProduceData(index=0, records=batch(b"c"))]
            ),
        ],
    )
    answer = await node.connection.send(request, 9)
    codes = [[part.error_code for part in topic.partition_responses] for topic in answer.responses]
    assert codes == [[0, ErrorCode.CORRUPT_MESSAGE, 0], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]


async def test_a_retry_of_an_idempotent_producer_is_stored_once(node: Served) -> None:
    node.topics.create("t")
    sent = batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
    first = await node.produce("t", sent)
    again = await node.produce("t", sent)
    assert (first.base_offset, again.base_offset, again.error_code) == (0, 0, ErrorCode.NONE)
    gap = await node.produce("t", batch(b"z", producer_id=7, producer_epoch=0, base_sequence=9))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert node.broker.replicas.leader("t", 0).log.end_offset == 2


async def test_a_wrong_leader_is_corrected_in_the_answer(node: Served) -> None:
    node.topics.create("t", leader=ELSEWHERE)
    node.topics._tell("t", node.broker.metadata.topic_id("t"), range(1), BROKER_ID, 5)
    answer = await node.produce("t", batch(b"x"), version=10)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (BROKER_ID, 5)


async def test_acks_0_has_no_answer(node: Served) -> None:
    node.topics.create("t")
    data = [PartitionProduceData(index=0, records=batch(b"quiet"))]
    request = ProduceRequest(
        acks=0, timeout_ms=100, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    await node.connection.post(request, 9)
    answer = await node.connection.send(MetadataRequest(topics=[]), 9)
    assert answer.controller_id == BROKER_ID, "the next answer belongs to the next request"
    assert node.broker.replicas.leader("t", 0).log.end_offset == 1


async def test_acks_0_that_fails_closes_the_connection(node: Served) -> None:
    data = [PartitionProduceData(index=0, records=batch(b"lost"))]
    request = ProduceRequest(
        acks=0, timeout_ms=100, topic_data=[TopicProduceData(name="nowhere", partition_data=data)]
    )
    await node.connection.post(request, 9)
    with pytest.raises(ConnectionLostError):
        await node.connection.send(MetadataRequest(topics=[]), 9)


async def test_acks_all_waits_for_the_high_watermark(node: Served) -> None:
    topic_id = node.topics.create("t")
    partition = node.broker.replicas.leader("t", 0)
    partition.lead(BROKER_ID, 1, (BROKER_ID, ELSEWHERE), (BROKER_ID, ELSEWHERE))
    late = await node.produce("t", batch(b"a"), acks=-1, timeout_ms=50)
    assert (late.error_code, late.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert (await node.fetch("t", 0)).records == b"", "what is not replicated is not readable"
    waiting = asyncio.create_task(node.produce("t", batch(b"b"), acks=-1, timeout_ms=30_000))
    while partition.log.end_offset < 2:
        await asyncio.sleep(0.002)
    assert not waiting.done()
    node.topics.lead("t", topic_id, range(1), BROKER_ID, leader_epoch=1, version=1)  # the ISR shrinks
    answer = await waiting
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)


async def test_nothing_is_acknowledged_after_leadership_was_taken(node: Served) -> None:
    topic_id = node.topics.create("t")
    partition = node.broker.replicas.leader("t", 0)
    partition.lead(BROKER_ID, 1, (BROKER_ID, ELSEWHERE), (BROKER_ID, ELSEWHERE))
    waiting = asyncio.create_task(node.produce("t", batch(b"a"), acks=-1, timeout_ms=30_000))
    while partition.log.end_offset < 1:
        await asyncio.sleep(0.002)
    node.topics.lead("t", topic_id, range(1), ELSEWHERE, leader_epoch=2, version=1)
    answer = await waiting
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_versions_that_are_only_advertised_close_the_connection(node: Served, version: int) -> None:
    low, _ = node.connection.versions[0]
    assert low == 0
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(b"\0\0\0\x14" + bytes([0, 0, 0, version]) + b"\0\0\0\1\xff\xff" + bytes(10))
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("version", [3, 9, 11])
async def test_a_transactional_batch_needs_a_transactional_id(node: Served, version: int) -> None:
    """Nobody would ever end what it begins: the last stable offset would stay before it for ever."""
    node.topics.create("t")
    orphan = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    answer = await node.produce("t", orphan, version=version)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "as Kafka has it"
    partition = node.broker.replicas.get("t", 0)
    assert partition is not None
    assert partition.log.end_offset == 0
    assert (await node.produce("t", batch(b"y"), version=version)).base_offset == 0
    assert partition.log.last_stable_offset == 1


def several(*data: tuple[int, bytes], topic: str = "t", acks: int = 1) -> ProduceRequest:
    parts = [PartitionProduceData(index=index, records=records) for index, records in data]
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=parts)]
    )


@pytest.mark.parametrize("version", [8, 9, 11])
@pytest.mark.parametrize("acks", [1, -1])
async def test_each_partition_is_appended_and_counted_once_beside_a_bad_one(
    node: Served, version: int, acks: int
) -> None:
    node.topics.create("t", 4)
    first = several(*((index, batch(b"0")) for index in range(4)), acks=acks)
    await node.connection.send(first, version)
    data = [(0, batch(b"a", b"b")), (1, broken_crc()), (2, batch(b"c")), (9, batch(b"d"))]
    answer = await node.connection.send(several(*data, acks=acks), version)
    assert [topic.name for topic in answer.responses] == ["t"]
    found = {
        part.index: (part.error_code, part.base_offset) for part in answer.responses[0].partition_responses
    }
    assert found == {
        0: (0, 1),
        1: (ErrorCode.CORRUPT_MESSAGE, -1),
        2: (0, 1),
        9: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    }
    counts = node.broker.metrics.topic("t")
    assert (counts.messages_in, counts.failed_produce) == (4 + 3, 2)
    assert counts.bytes_in == 5 * len(batch(b"0")) + len(batch(b"a", b"b"))
    assert [node.broker.replicas.leader("t", index).log.end_offset for index in range(4)] == [3, 1, 2, 1]


@pytest.mark.parametrize("version", [8, 9, 11])
async def test_a_failure_inside_the_broker_is_told_in_the_version_s_shape(
    node: Served, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.topics.create("t")

    def broken(*_: object) -> None:
        raise RuntimeError("a part of the broker is broken")

    monkeypatch.setattr(node.broker.metrics, "topic", broken)
    answer = await node.produce("t", batch(b"x"), version=version)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("acks", [1, -1])
async def test_readers_that_wait_hear_of_plain_batches(node: Served, acks: int) -> None:
    node.topics.create("t")
    await node.produce("t", batch(b"first"), version=11)
    woken: list[int] = []
    node.broker.replicas.leader("t", 0).watch(woken.append)
    await node.produce("t", batch(b"second"), acks=acks, version=11)
    assert woken == [len(batch(b"second"))]


@pytest.mark.parametrize("version", [9, 11, 12])
async def test_a_transactional_batch_with_impossible_counts_is_refused_alone(
    node: Served, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the log sees it, its header is read to ask the transaction's coordinator."""
    node.topics.create(TRANSACTIONS_TOPIC)
    node.topics.create("t", partitions=2)
    bad = bytearray(batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True))
    bad[23:27] = (-7).to_bytes(4, "big", signed=True)
    parts = [
        PartitionProduceData(index=0, records=bytes(bad)),
        PartitionProduceData(index=1, records=batch(b"good")),
    ]
    request = ProduceRequest(
        transactional_id="x",
        acks=1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name="t", partition_data=parts)],
    )
    answer = await node.connection.send(request, version)
    ((refused, stored),) = (each.partition_responses for each in answer.responses)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert (stored.error_code, stored.base_offset) == (ErrorCode.NONE, 0)
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_partition_that_fails_in_an_unforeseen_way_fails_alone(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I10: what the others have stored is acknowledged, else their producers would store it again."""
    node.topics.create("t", partitions=2)
    broken = node.broker.replicas.leader("t", 0).log
    append = Log.append

    def fails(log: Log, *arguments: Any, **more: Any) -> Any:
        if log is broken:
            raise RuntimeError("unforeseen")
        return append(log, *arguments, **more)

    monkeypatch.setattr(Log, "append", fails)
    monkeypatch.setattr(Log, "append_ordinary", lambda *_, **__: None)
    parts = [PartitionProduceData(index=index, records=batch(b"a")) for index in (0, 1)]
    request = ProduceRequest(
        acks=1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=parts)]
    )
    answer = await node.connection.send(request, 9)
    ((failed, stored),) = (each.partition_responses for each in answer.responses)
    assert (failed.error_code, failed.base_offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    assert (stored.error_code, stored.base_offset) == (ErrorCode.NONE, 0)
