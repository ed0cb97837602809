"""Every call of the cluster client, and batches to and from others, with Apache Kafka and our broker."""

import asyncio
import uuid
from collections.abc import Collection, Iterator

import pytest
from confluent_kafka import Consumer, Producer

from protocol.api import ApiKey
from protocol.client import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NO_RETRIES,
    ClusterClient,
    Committed,
    ConfigKind,
    ConfigSource,
    Isolation,
    NewTopic,
)
from protocol.errors import KafkaError
from protocol.records import Codec, Record, build_batch, check_crc, decode_batches, iter_headers
from protocol.types import ZERO_UUID, TopicPartition
from tests.support.apache_kafka import apache_kafka, kafka_tool
from tests.support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.slow]

KEEP = {"retention.ms": "-1"}  # the records below are years old
T0 = 1_700_000_000_000
RECORDS = [
    Record(0, T0, b"k", b"v", [("h", b"x"), ("h", None), ("", b"")]),
    Record(1, T0 + 90 * 86_400_000, None, b""),
    Record(2, T0 + 1, b"", None),
    Record(3, T0 + 2, b"k" * 300, b"v" * 40_000),
]


@pytest.fixture(scope="module", params=["apache-kafka", pytest.param("isthmus", marks=pytest.mark.cluster)])
def kafka(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "isthmus":
        yield request.getfixturevalue("broker").bootstrap
    else:
        with apache_kafka("cluster-client") as bootstrap:
            yield bootstrap


@pytest.fixture
async def client(kafka):
    async with ClusterClient(kafka) as client:
        yield client


@pytest.fixture
async def topic(client):
    name = f"t-{uuid.uuid4().hex[:8]}"
    await client.create_topics([NewTopic(name, 2, 1, KEEP)])
    yield name
    await client.delete_topics([name])


async def test_the_cluster_is_known(client, kafka):
    assert client.cluster_id
    [(node, broker)] = client.brokers.items()
    assert f"{broker.host}:{broker.port}" == kafka
    assert client.controller_id == node


async def test_topics(client):
    one, other = f"one-{uuid.uuid4().hex[:8]}", f"other-{uuid.uuid4().hex[:8]}"
    names = {one: 3, other: 1}
    ids = await client.create_topics(
        [NewTopic(one, 3, 1, {"retention.ms": "123456"}), NewTopic(other, assignment={0: [1]})]
    )
    # Apache Kafka answers CreateTopics before its metadata has the topics.
    metadata = await eventually(
        lambda: client.metadata(list(names)),
        lambda found: all(
            name in found.topics and found.topics[name].topic_id != ZERO_UUID for name in names
        ),
    )
    for name, partitions in names.items():
        assert metadata.topics[name].topic_id == ids[name] != ZERO_UUID
        assert len(metadata.topics[name].partitions) == partitions
        assert metadata.topics[name].partitions[0].isr == (1,)
    with pytest.raises(KafkaError, match=f"topic {one}: .*TOPIC_ALREADY_EXISTS"):
        await client.create_topics([NewTopic(one, 3, 1)])
    await client.create_topics([NewTopic("only-checked", 1, 1)], validate_only=True)
    with pytest.raises(KafkaError, match="INVALID_CONFIG"):
        await client.create_topics([NewTopic("never", 1, 1, {"retention.ms": "long"})])

    await client.create_partitions({other: 4})
    async with asyncio.timeout(30):  # Apache Kafka's brokers learn of it after the answer
        while len((await client.metadata([other])).topics[other].partitions) != 4:
            await asyncio.sleep(0.05)
    assert (await client.list_offsets({TopicPartition(other, 3): LATEST}))[
        TopicPartition(other, 3)
    ].offset == 0
    with pytest.raises(KafkaError, match=f"topic {other}: .*INVALID_PARTITIONS"):
        await client.create_partitions({other: 2})

    async def settings_of_one():  # nor before its brokers have the new ones
        keys = ["retention.ms", "segment.bytes", "retention.bytes"]
        return (await client.describe_configs([one], keys=keys))[one]

    await client.alter_configs({one: {"retention.ms": "5000", "segment.bytes": "1048576"}})
    found = await eventually(settings_of_one, lambda found: found["segment.bytes"].value == "1048576")
    assert {key: entry.value for key, entry in found.items()} == {
        "retention.ms": "5000",
        "segment.bytes": "1048576",
        "retention.bytes": "-1",
    }
    assert found["retention.ms"].source is ConfigSource.TOPIC
    assert found["retention.bytes"].source is ConfigSource.DEFAULT
    await client.alter_configs({one: {"retention.ms": None}})
    found = await eventually(settings_of_one, lambda found: found["retention.ms"].value != "5000")
    assert found["retention.ms"].value == "604800000"
    broker = (await client.describe_configs(["1"], ConfigKind.BROKER))["1"]
    assert broker["log.dirs"].read_only

    await client.delete_topics(list(names))

    async def topics() -> Collection[str]:  # Apache Kafka answers before its brokers know
        return (await client.metadata(None)).topics

    await eventually(topics, lambda found: one not in found)
    with pytest.raises(KafkaError, match=r"topic never: .*UNKNOWN_TOPIC_OR_PARTITION"):
        await client.delete_topics(["never"], retry=NO_RETRIES)


@pytest.mark.parametrize("codec", Codec)
async def test_produce_and_fetch(client, topic, codec):
    tp = TopicPartition(topic, 1)
    batch = build_batch(RECORDS, codec=codec)
    assert await client.produce(tp, batch) == 0
    assert await client.produce(tp, [batch[:61], memoryview(batch)[61:]], acks=1) == 4
    assert await client.produce(tp, batch, acks=0) == -1
    for _ in range(100):
        if (await client.list_offsets({tp: LATEST}))[tp].offset == 12:
            break
        await asyncio.sleep(0.05)
    found = await client.fetch(tp, 5)  # in the middle of the second batch
    assert found.high_watermark == 12
    records = list(decode_batches(found.records))
    assert [record.offset for record in records] == list(range(4, 12))
    for record in records:
        source = RECORDS[record.offset % 4]
        assert (record.timestamp, record.key, record.value, record.headers) == (
            source.timestamp,
            source.key,
            source.value,
            source.headers,
        )
    headers = list(iter_headers(found.records))
    assert [header.codec for _, header in headers] == [codec] * 2
    assert all(check_crc(found.records, pos, header) for pos, header in headers)


async def test_offsets(client, topic):
    tp, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for number in range(3):
        await client.produce(tp, build_batch([Record(0, T0 + 10 * number, None, b"x")]))
    last = await client.list_offsets({tp: LATEST, empty: LATEST})
    assert (last[tp].offset, last[empty].offset) == (3, 0)
    by_time = await client.list_offsets({tp: T0 + 5, empty: T0})
    assert by_time[tp][:2] == (1, T0 + 10)
    assert by_time[empty].offset == -1
    assert (await client.list_offsets({tp: MAX_TIMESTAMP}))[tp][:2] == (2, T0 + 20)
    assert await client.delete_records({tp: 2}) == {tp: 2}
    assert (await client.list_offsets({tp: EARLIEST}, isolation=Isolation.READ_COMMITTED))[tp].offset == 2
    with pytest.raises(KafkaError, match=f"{topic}-0 at offset 1: OFFSET_OUT_OF_RANGE"):
        await client.fetch(tp, 1)
    with pytest.raises(KafkaError, match=f"{topic}-7: UNKNOWN_TOPIC_OR_PARTITION"):
        await client.list_offsets({TopicPartition(topic, 7): LATEST}, retry=NO_RETRIES)


async def test_idempotent_batches_are_appended_once(client, topic):
    tp = TopicPartition(topic, 0)
    producer = await client.init_producer_id()
    batch = build_batch(
        RECORDS, producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=0
    )
    assert await client.produce(tp, batch) == 0
    assert await client.produce(tp, batch) == 0
    assert (await client.list_offsets({tp: LATEST}))[tp].offset == 4
    gap = build_batch(
        RECORDS, producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=9
    )
    with pytest.raises(KafkaError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        await client.produce(tp, gap)


async def test_many_partitions_at_once_and_several_fetches_in_flight(client):
    name = f"t-{uuid.uuid4().hex[:8]}"
    await client.create_topics([NewTopic(name, 30, 1, KEEP)])
    tps = [TopicPartition(name, index) for index in range(30)]
    batches = [build_batch([Record(0, T0, b"%d" % tp.partition, b"v" * 1000)] * 50) for tp in tps]
    assert await asyncio.gather(*map(client.produce, tps, batches)) == [0] * 30
    ends = await client.list_offsets(dict.fromkeys(tps, LATEST))
    assert {end.offset for end in ends.values()} == {50}
    found = await client.fetch_from(1, dict.fromkeys(tps, 10))
    for tp in tps:
        fetched = found[tp]
        assert not isinstance(fetched, KafkaError)
        assert [record.key for record in decode_batches(fetched.records)] == [b"%d" % tp.partition] * 50
    await client.delete_topics([name])


async def test_groups(client, topic):
    group = f"g-{uuid.uuid4().hex[:8]}"
    tp, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert await client.committed(group) == {}
    await client.commit(group, {tp: Committed(3, 0, "note"), other: Committed(0)})
    assert await client.committed(group) == {tp: Committed(3, 0, "note"), other: Committed(0, -1, "")}
    assert await client.committed(group, [tp]) == {tp: Committed(3, 0, "note")}
    assert await client.committed(group, [TopicPartition(topic, 9)]) == {}
    listed = {found.group_id: found for found in await client.list_groups()}
    assert listed[group].state == "Empty"
    described = await client.describe_groups([group, "nobody"])
    assert described[group].state == "Empty"
    assert described["nobody"].state == "Dead"
    await client.delete_groups([group])
    assert await client.committed(group) == {}
    with pytest.raises(KafkaError, match=f"group {group}: GROUP_ID_NOT_FOUND"):
        await client.delete_groups([group])


async def test_a_group_with_members(client, topic, kafka):
    group = f"g-{uuid.uuid4().hex[:8]}"
    await client.produce(TopicPartition(topic, 0), build_batch(RECORDS))
    settings = {"bootstrap.servers": kafka, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "client.id": "member"})
    try:
        consumer.subscribe([topic])
        messages = await asyncio.to_thread(consumer.consume, 4, 20)
        assert len(messages) == 4
        found = (await client.describe_groups([group]))[group]
        assert (found.state, found.protocol_type) == ("Stable", "consumer")
        assert [member.client_id for member in found.members] == ["member"]
        assert topic.encode() in found.members[0].assignment
        with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
            await client.commit(group, {TopicPartition(topic, 0): Committed(1)})
        with pytest.raises(KafkaError, match=f"group {group}: NON_EMPTY_GROUP"):
            await client.delete_groups([group])
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_batches_of_librdkafka(client, topic, kafka, codec):
    producer = Producer({"bootstrap.servers": kafka, "compression.type": codec, "linger.ms": 200})
    for number in range(500):
        producer.produce(
            topic,
            b"value %d" % number * 10,
            b"%d" % number,
            partition=0,
            timestamp=T0 + number,
            headers={"n": b"x"},
        )
    assert await asyncio.to_thread(producer.flush, 30) == 0
    found = await client.fetch(TopicPartition(topic, 0), 0)
    assert list(decode_batches(found.records)) == [
        Record(n, T0 + n, b"%d" % n, b"value %d" % n * 10, [("n", b"x")]) for n in range(500)
    ]
    assert {header.codec for _, header in iter_headers(found.records)} == {Codec[codec.upper()]}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_batches_of_the_java_producer(client, topic, kafka, codec):
    lines = [f"{number}:{'value ' * 20}{number}" for number in range(2000)]
    await asyncio.to_thread(
        kafka_tool,
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", kafka, "--topic", topic, "--compression-codec", codec),
        *(
            "--reader-property",
            "parse.key=true",
            "--reader-property",
            "key.separator=:",
            "--batch-size",
            "100000",
        ),
        text="\n".join(lines) + "\n",
    )
    seen = []
    for partition in range(2):
        tp = TopicPartition(topic, partition)
        found = await client.fetch(tp, 0)
        seen += [f"{record.key.decode()}:{record.value.decode()}" for record in decode_batches(found.records)]
        assert {header.codec for _, header in iter_headers(found.records)} <= {Codec[codec.upper()]}
    assert sorted(seen) == sorted(lines)


async def test_the_java_consumer_and_librdkafka_read_ours(client, topic, kafka):
    expected = []
    for codec in Codec:
        many = [Record(0, T0, codec.name.encode(), b"%d" % number + b"." * 900) for number in range(300)]
        await client.produce(TopicPartition(topic, 0), build_batch(RECORDS + many, codec=codec))
        expected += RECORDS + many
    printed = await asyncio.to_thread(
        kafka_tool,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", kafka, "--topic", topic, "--from-beginning", "--timeout-ms", "30000"),
        *("--max-messages", str(len(expected)), "--formatter-property", "print.key=true"),
        *("--formatter-property", "print.headers=true", "--formatter-property", "print.timestamp=true"),
    )
    assert printed.splitlines() == [as_the_console_prints(record) for record in expected]

    settings = {"bootstrap.servers": kafka, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "check.crcs": True})
    try:
        consumer.subscribe([topic])
        messages = []
        while len(messages) < len(expected):
            more = await asyncio.to_thread(consumer.consume, len(expected) - len(messages), 20)
            assert more
            messages += more
    finally:
        consumer.close()
    for message, record in zip(messages, expected, strict=True):
        assert (message.key(), message.value(), message.headers() or []) == (
            record.key,
            record.value,
            record.headers,
        )
        assert message.timestamp()[1] == record.timestamp


def as_the_console_prints(record: Record) -> str:
    def text(value: bytes | None) -> str:
        return "null" if value is None else value.decode()

    headers = ",".join(f"{name}:{text(value)}" for name, value in record.headers) or "NO_HEADERS"
    return "\t".join((f"CreateTime:{record.timestamp}", headers, text(record.key), text(record.value)))


async def test_a_group_of_the_consumer_protocol_has_its_state_and_members(kafka, client, topic):
    """KIP-848: DescribeGroups says of it that it is dead."""
    if not await _speaks(client, ApiKey.CONSUMER_GROUP_DESCRIBE):
        pytest.skip("the broker has no groups of the consumer protocol")
    await client.produce(TopicPartition(topic, 0), build_batch(RECORDS, codec=Codec.NONE))
    settings = {"group.protocol": "consumer", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": topic, **settings})
    consumer.subscribe([topic])
    try:
        message = await asyncio.to_thread(consumer.poll, 30)
        assert message is not None
        await asyncio.to_thread(consumer.commit, asynchronous=False)
        described = (await client.describe_groups([topic]))[topic]
        assert (described.state, described.protocol_type) == ("Stable", "consumer")
        assert len(described.members) == 1
    finally:
        await asyncio.to_thread(consumer.close)

    async def state() -> str:
        return (await client.describe_groups([topic]))[topic].state

    await eventually(state, lambda found: found == "Empty")


async def _speaks(client: ClusterClient, key: ApiKey) -> bool:
    connection = await client.connection_to(next(iter(client.brokers)))
    return key in connection.versions
