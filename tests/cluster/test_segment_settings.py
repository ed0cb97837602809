"""What settings of segments do to the files of a partition: how many, where they begin, how long indexes are.

Each test says in numbers what Apache Kafka 4.3 leaves on its disk: with ISTHMUS_ORACLE=1 the same tests run
against it (see `tests.support.sides`). Batches are made here byte by byte, so sizes are known. Indexes of the
active segment are left out: Kafka sizes them in advance, here they are written when the segment is closed.
"""

import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Final

import pytest

from broker.log.checkpoints import read_offsets
from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode, KafkaError
from protocol.records import Record, build_batch, decode_batches, iter_headers
from protocol.types import TopicPartition
from tests.support.sides import SIDES, Side, StartSide
from tests.support.waiting import eventually, wait_until

pytestmark = pytest.mark.cluster
QUICK = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "300",
    "log.flush.scheduler.interval.ms": "100",
    "log.flush.interval.ms": str((1 << 63) - 1),
    "log.flush.offset.checkpoint.interval.ms": "100",
}
T0: Final = int(time.time() * 1000) - 600_000
MEBIBYTE: Final = 1 << 20
"""The smallest `segment.bytes` that Kafka 4 takes (KIP-1030); ours goes lower."""


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "segment-settings", QUICK) as side:
        yield side


@pytest.fixture
async def client(side: Side) -> AsyncIterator[ClusterClient]:
    async with ClusterClient(side.bootstrap) as client:
        yield client


def sized(size: int, at_ms: int = 0, records: int = 1) -> bytes:
    """A batch of exactly `size` bytes whose records are all of `at_ms` after T0."""

    def made(value: int) -> bytes:
        fillers = [Record(n, T0 + at_ms, b"k", b"", []) for n in range(records - 1)]
        return build_batch([*fillers, Record(records - 1, T0 + at_ms, b"k", bytes(value), [])])

    value = size - len(made(0))
    while len(made(value)) > size:
        value -= 1
    batch = made(value)
    assert len(batch) == size, "lengths of varints leave a hole here: take another size"
    return batch


async def create(client: ClusterClient, name: str, partitions: int = 1, **configs: str) -> TopicPartition:
    texts = {key.replace("_", "."): text for key, text in configs.items()}
    await client.create_topics([NewTopic(name, partitions, 1, configs=texts)])
    return TopicPartition(name, 0)


def lengths(side: Side, tp: TopicPartition, kind: str) -> dict[int, int]:
    """Base offset -> bytes of the files of one kind, of all segments but the active one."""
    directory = side.data / str(tp)
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    return {base: (directory / f"{base:020d}.{kind}").stat().st_size for base in bases[:-1]}


def bases(side: Side, tp: TopicPartition) -> list[int]:
    return sorted(int(path.stem) for path in (side.data / str(tp)).glob("*.log"))


async def test_segment_bytes(side: Side, client: ClusterClient) -> None:
    """A batch that fits to the byte stays; what would be one byte too much starts a segment."""
    tp = await create(client, "bytes", segment_bytes=str(MEBIBYTE))
    half = MEBIBYTE // 2
    for size in (half, half, half, half + 1, 1000, half):
        await client.produce(tp, sized(size))
    assert bases(side, tp) == [0, 2, 3, 5]
    assert lengths(side, tp, "log") == {0: MEBIBYTE, 2: half, 3: half + 1001}
    large = await create(client, "large", segment_bytes=str(MEBIBYTE), max_message_bytes="3000000")
    assert await refusal(client, large, sized(MEBIBYTE + 1)) == ErrorCode.RECORD_LIST_TOO_LARGE


async def test_segment_ms_counts_from_the_first_batch_in_record_time(
    side: Side, client: ClusterClient
) -> None:
    tp = await create(client, "ms", segment_ms="1000")
    for at in (0, 400, 1000, 1001, 500, 2001, 2002, 10_000):
        await client.produce(tp, sized(300, at))
    assert bases(side, tp) == [0, 3, 6, 7]
    assert lengths(side, tp, "timeindex") == {0: 12, 3: 12, 6: 12}, "closing adds the largest timestamp"
    assert lengths(side, tp, "index") == {0: 0, 3: 0, 6: 0}


async def test_segment_jitter_spreads_new_segments(side: Side, client: ClusterClient) -> None:
    """Each segment, the first one too, is closed at a time of its own within `segment.ms`."""
    count = 40
    await create(client, "jitter", count, segment_ms="100000", segment_jitter_ms="100000")
    partitions = [TopicPartition("jitter", number) for number in range(count)]
    for at in (0, 50_000):
        for tp in partitions:
            await client.produce(tp, sized(300, at))
    rolled = [tp for tp in partitions if len(bases(side, tp)) == 2]
    assert 4 < len(rolled) < count - 4, "about half; outside of it once in some millions of runs"


async def test_jitter_is_never_more_than_segment_ms(side: Side, client: ClusterClient) -> None:
    await create(client, "bounded", 20, segment_ms="3000", segment_jitter_ms="9000000000")
    for number in range(20):
        tp = TopicPartition("bounded", number)
        for _ in range(3):
            await client.produce(tp, sized(300, 0))
        assert bases(side, tp) == [0], "no time has passed in the records"


async def test_index_interval_bytes(side: Side, client: ClusterClient) -> None:
    """An entry for the batch before which more than the interval was written since the last one."""
    for interval, index, timeindex in (("0", 72, 108), ("999", 32, 60), ("1000", 24, 36), ("1000000", 0, 12)):
        tp = await create(client, f"interval-{interval}", index_interval_bytes=interval, segment_ms="1000")
        for at in range(10):
            await client.produce(tp, sized(500, at))
        await client.produce(tp, sized(500, 5000))
        assert lengths(side, tp, "index") == {0: index}, interval
        assert lengths(side, tp, "timeindex") == {0: timeindex}, interval


@pytest.mark.parametrize(
    ("limit", "step_ms", "batches", "index", "timeindex"),
    [(40, 1, 3, 16, 24), (100, 1, 8, 56, 84), (101, 1, 8, 56, 84), (40, 0, 6, 40, 12)],
)
async def test_segment_index_bytes(
    side: Side, client: ClusterClient, limit: int, step_ms: int, batches: int, index: int, timeindex: int
) -> None:
    """A full index closes the segment, whatever its size: that of times first where time moves on."""
    name = f"index-{limit}-{step_ms}"
    tp = await create(client, name, segment_index_bytes=str(limit), index_interval_bytes="0")
    for number in range(2 * batches + 1):
        await client.produce(tp, sized(500, number * step_ms))
    assert bases(side, tp) == [0, batches, 2 * batches]
    assert lengths(side, tp, "index") == {0: index, batches: index}
    assert lengths(side, tp, "timeindex") == {0: timeindex, batches: timeindex}


def recovery_point(side: Side, tp: TopicPartition) -> int:
    """Up to where the log is on disk, as the checkpoint says."""
    return read_offsets(str(side.data / "recovery-point-offset-checkpoint")).get(tp, 0)


async def test_flush_messages(side: Side, client: ClusterClient) -> None:
    """The append that makes it so many records is answered when they are on disk."""
    tp = await create(client, "flush-messages", flush_messages="5")
    other = await create(client, "never-flushed")
    for expected in (0, 0, 6, 6, 6, 12):
        await client.produce(tp, sized(500, records=2))
        await client.produce(other, sized(500, records=2))
        if expected:
            wait_until(partial(_reaches, side, tp, expected), f"recovery point {expected}")
        assert recovery_point(side, tp) == expected
    assert recovery_point(side, other) == 0
    await client.alter_configs({"flush-messages": {"flush.messages": "1"}})

    async def one_more() -> int:
        await client.produce(tp, sized(500))
        return (await client.list_offsets({tp: -1}))[tp].offset

    await eventually(one_more, lambda end: recovery_point(side, tp) >= end - 1 > 12)


def _reaches(side: Side, tp: TopicPartition, offset: int) -> bool:
    return recovery_point(side, tp) >= offset


async def test_flush_ms(side: Side, client: ClusterClient) -> None:
    tp = await create(client, "flush-ms", flush_ms="300")
    for end in (1, 2):
        await client.produce(tp, sized(500))
        wait_until(partial(_reaches, side, tp, end), f"recovery point {end}")


def deleted(side: Side, tp: TopicPartition) -> list[str]:
    return sorted(path.name for path in (side.data / str(tp)).glob("*.log.deleted"))


async def test_file_delete_delay_ms(side: Side, client: ClusterClient) -> None:
    """Segments that retention has let go stay as `.deleted` files for that long."""
    tp = await create(client, "delay", file_delete_delay_ms="3000", segment_ms="1000", retention_bytes="1000")
    for at in (0, 2000, 4000, 6000):
        await client.produce(tp, sized(600, at))
    began = time.monotonic()
    wait_until(lambda: len(deleted(side, tp)) == 2, "two segments are let go")
    renamed = time.monotonic()
    assert bases(side, tp) == [2, 3]
    assert deleted(side, tp)[0] == "00000000000000000000.log.deleted"
    wait_until(lambda: not deleted(side, tp), "the files go")
    assert time.monotonic() - began >= 3.0
    assert time.monotonic() - renamed < 30


async def test_retention_takes_whole_segments(side: Side, client: ClusterClient) -> None:
    """By size: while what is left still holds the limit. By time: the newest record of a segment counts."""
    old = await create(client, "old", retention_ms="60000", segment_ms="1000")
    large = await create(client, "large-log", retention_bytes="1500", segment_ms="1000")
    exact = await create(client, "exact", retention_bytes="1800", segment_ms="1000")
    now = int(time.time() * 1000) - T0
    for at in (now - 90_000, now - 65_000, now - 62_000, now - 61_500, now - 50_000, now - 80_000, now):
        await client.produce(old, sized(600, at))
    for at in (0, 2000, 4000, 6000):
        await client.produce(large, sized(600, at))
        await client.produce(exact, sized(600, at))
    wait_until(lambda: bases(side, exact) == [1, 2, 3], "one segment less")
    wait_until(lambda: bases(side, large) == [1, 2, 3], "one segment less: without one more it is below")
    wait_until(lambda: bases(side, old)[0] == 4, "what is older than a minute goes")
    assert bases(side, old) == [4, 6], "a record older than it keeps its place behind a newer one"
    for tp, start in ((old, 4), (large, 1), (exact, 1)):
        assert (await client.list_offsets({tp: -2}))[tp].offset == start


async def refusal(client: ClusterClient, tp: TopicPartition, batch: bytes) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await client.produce(tp, batch)
    return refused.value.code


async def test_max_message_bytes(client: ClusterClient) -> None:
    """Counts the batch with its header, to the byte."""
    tp = await create(client, "max", max_message_bytes="2000")
    await client.produce(tp, sized(2000))
    assert await refusal(client, tp, sized(2001)) == ErrorCode.MESSAGE_TOO_LARGE
    await client.produce(tp, sized(2000, records=9))


async def test_message_timestamp_limits(client: ClusterClient) -> None:
    """Either side of the broker's clock; the default lets an hour of the future in, and all of the past."""
    narrow = await create(
        client, "narrow", message_timestamp_before_max_ms="60000", message_timestamp_after_max_ms="30000"
    )
    plain = await create(client, "plain")
    now = int(time.time() * 1000) - T0
    for at, tp in ((now - 50_000, narrow), (now + 20_000, narrow), (-T0, plain), (now + 3_500_000, plain)):
        await client.produce(tp, sized(300, at))
    for at, tp in ((now - 61_000, narrow), (now + 45_000, narrow), (now + 3_700_000, plain)):
        assert await refusal(client, tp, sized(300, at)) == ErrorCode.INVALID_TIMESTAMP
    stamped = await create(
        client, "stamped", message_timestamp_before_max_ms="10", message_timestamp_type="LogAppendTime"
    )
    await client.produce(stamped, sized(300, now - 90_000))  # the broker's own times are always right


async def test_message_timestamp_type(client: ClusterClient) -> None:
    """The broker's time on every record of a batch; changing it back leaves what is stored."""
    tp = await create(client, "type", message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    await client.produce(tp, sized(300, 0, records=3))
    await client.alter_configs({"type": {"message.timestamp.type": "CreateTime"}})

    async def types() -> list[int]:
        await client.produce(tp, sized(300, 0, records=3))
        fetched = await client.fetch(tp, 0)
        return [header.attributes >> 3 & 1 for _, header in iter_headers(fetched.records)]

    found = await eventually(types, lambda found: found[-1] == 0)
    assert found[0] == 1
    records = decode_batches((await client.fetch(tp, 0)).records)
    times = [record.timestamp for record in records]
    assert len(set(times[:3])) == 1
    assert before <= times[0] <= int(time.time() * 1000)
    assert times[-3:] == [T0] * 3
