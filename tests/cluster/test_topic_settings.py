"""What topic settings do, seen by a client: at creation, and when they change while the topic is in use.

With ISTHMUS_ORACLE=1 the same tests run against Apache Kafka (see `tests.support.sides`).
"""

import time
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode, KafkaError
from protocol.records import Codec, Record, build_batch, decode_batches, iter_headers
from protocol.types import TopicPartition
from tests.support.sides import SIDES, Side, StartSide
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
EARLIEST = -2
QUICK = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "300",
    "log.segment.delete.delay.ms": "100",
}
ROLLING = {"segment.ms": "10000", "min.cleanable.dirty.ratio": "0.01"}
"""A record that is more than ten seconds younger than a segment's first starts a new segment."""


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "clean-settings", QUICK) as side:
        yield side


@pytest.fixture
async def client(side: Side) -> AsyncIterator[ClusterClient]:
    async with ClusterClient(side.bootstrap) as client:
        yield client


def aged(*items: tuple[bytes, bytes | None], age_s: float = 0, codec: Codec = Codec.NONE) -> bytes:
    at = int((time.time() - age_s) * 1000)
    return build_batch([Record(n, at, key, value, []) for n, (key, value) in enumerate(items)], codec=codec)


async def create(client: ClusterClient, name: str, **configs: str) -> TopicPartition:
    texts = {key.replace("_", "."): text for key, text in configs.items()}
    await client.create_topics([NewTopic(name, 1, 1, configs=ROLLING | texts)])
    return TopicPartition(name, 0)


async def start(client: ClusterClient, tp: TopicPartition) -> int:
    return (await client.list_offsets({tp: EARLIEST}))[tp].offset


async def contents(client: ClusterClient, tp: TopicPartition) -> list[tuple[bytes | None, bytes | None]]:
    offset, end = await start(client, tp), (await client.list_offsets({tp: -1}))[tp].offset
    found = []
    while offset < end:
        fetched = await client.fetch(tp, offset)
        found += [(r.key, r.value) for r in decode_batches(fetched.records) if r.offset >= offset]
        *_, (_, last) = iter_headers(fetched.records)
        offset = last.next_offset
    return found


async def refusal(client: ClusterClient, tp: TopicPartition, batch: bytes) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await client.produce(tp, batch)
    return refused.value.code


async def test_limits_of_appends(client: ClusterClient) -> None:
    tp = await create(client, "limits", max_message_bytes="2000", message_timestamp_before_max_ms="60000")
    assert await refusal(client, tp, aged((b"k", bytes(3000)))) == ErrorCode.MESSAGE_TOO_LARGE
    assert await refusal(client, tp, aged((b"k", b"v"), age_s=120)) == ErrorCode.INVALID_TIMESTAMP
    await client.alter_configs(
        {"limits": {"max.message.bytes": "9000", "message.timestamp.before.max.ms": None}}
    )

    async def accepted() -> bool:
        try:
            await client.produce(tp, aged((b"k", bytes(3000)), age_s=120))
        except KafkaError:
            return False
        return True

    await eventually(accepted, bool)


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
async def test_compression_type(client: ClusterClient, wanted: str) -> None:
    tp = await create(client, f"codec-{wanted}", compression_type=wanted)
    for codec in Codec:
        await client.produce(tp, aged((b"k", bytes(500)), (b"l", bytes(500)), codec=codec))
    fetched = await client.fetch(tp, 0)
    codecs = {header.codec for _, header in iter_headers(fetched.records)}
    assert codecs == {0 if wanted == "uncompressed" else Codec[wanted.upper()]}
    assert len(await contents(client, tp)) == 10


async def test_retention_by_time_and_by_size(client: ClusterClient) -> None:
    old = await create(client, "old", retention_ms="60000")
    large = await create(client, "large", retention_bytes="5000")
    for tp in (old, large):
        for age_s in (300, 200, 100, 0):
            await client.produce(tp, aged((b"k", bytes(3000)), age_s=age_s))
    assert await eventually(partial(start, client, old), lambda offset: offset == 3)
    assert await eventually(partial(start, client, large), lambda offset: offset >= 2) == 2


async def test_the_policy_changes_while_the_topic_is_in_use(client: ClusterClient) -> None:
    tp = await create(client, "policy", cleanup_policy="delete", retention_ms="-1")
    for value, age_s in ((b"1", 300), (b"2", 200), (b"3", 0)):
        await client.produce(tp, aged((b"a", value), (b"b", value), age_s=age_s))
    assert len(await contents(client, tp)) == 6
    await client.alter_configs({"policy": {"cleanup.policy": "compact"}})
    kept = await eventually(partial(contents, client, tp), lambda found: len(found) < 6)
    assert kept == [(b"a", b"2"), (b"b", b"2"), (b"a", b"3"), (b"b", b"3")]
    assert await refusal(client, tp, aged((None, b"v"))) == ErrorCode.INVALID_RECORD  # type: ignore[arg-type]
    await client.alter_configs({"policy": {"cleanup.policy": "compact,delete", "retention.ms": "60000"}})
    assert await eventually(partial(start, client, tp), lambda offset: offset > 0) == 4


async def test_no_policy_keeps_everything(client: ClusterClient) -> None:
    none = await create(client, "none", cleanup_policy="", retention_ms="1000")
    other = await create(client, "other", cleanup_policy="delete", retention_ms="1000")
    for tp in (none, other):
        for age_s in (300, 200, 0):
            await client.produce(tp, aged((b"a", b"v"), age_s=age_s))
    await eventually(partial(start, client, other), lambda offset: offset >= 2)
    assert len(await contents(client, none)) == 3


async def test_lags_hold_compaction_back_and_force_it(client: ClusterClient) -> None:
    held = await create(client, "held", cleanup_policy="compact", min_compaction_lag_ms="3600000")
    forced = await create(
        client,
        "forced",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="1.0",
        max_compaction_lag_ms="1000",
    )
    free = await create(client, "free", cleanup_policy="compact")
    for tp in (held, forced, free):
        for value, age_s in ((b"1", 300), (b"2", 200), (b"3", 0)):
            await client.produce(tp, aged((b"a", value), age_s=age_s))
    for tp in (forced, free):
        await eventually(partial(contents, client, tp), lambda found: (b"a", b"1") not in found)
    assert len(await contents(client, held)) == 3
    await client.alter_configs({"held": {"min.compaction.lag.ms": None}})
    await eventually(partial(contents, client, held), lambda found: (b"a", b"1") not in found)


async def test_deletion_markers_go_after_their_time(client: ClusterClient) -> None:
    tp = await create(client, "markers", cleanup_policy="compact", delete_retention_ms="500")
    await client.produce(tp, aged((b"a", b"1"), (b"b", b"1"), age_s=900))
    await client.produce(tp, aged((b"a", None), age_s=800))

    async def a_round() -> list[tuple[bytes | None, bytes | None]]:
        """More to clean: a marker goes with a cleaning, and there is none without something dirty."""
        await client.produce(tp, aged((b"c", b"x"), age_s=ages.pop()))
        return await contents(client, tp)

    ages = [float(age) for age in range(0, 700, 20)]
    found = await eventually(a_round, lambda found: not any(key == b"a" for key, _ in found), bound_s=30)
    assert (b"b", b"1") in found
