"""C03: readers get on where compaction has emptied the end of a segment, at every offset, with any client."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Partition

from protocol.client.cluster import ClusterClient
from protocol.client.log_calls import Isolation
from protocol.client.topic_calls import NewTopic
from protocol.messages.api_versions_request import ApiVersionsRequest
from protocol.records import Record, build_batch, decode_batches, iter_headers
from protocol.types import TopicPartition
from tests.support.sides import SIDES, Side, StartSide
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
ADD_PARTITIONS_TO_TXN = 24
QUICK = {"log.cleaner.backoff.ms": "100"}
CONFIGS = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "60000",
    "delete.retention.ms": "100",
}  # fmt: skip
TOPIC = "compacted"
TP = TopicPartition(TOPIC, 0)


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "clean-c03", QUICK) as side:
        yield side


def batch(keys: str, value: bytes, age_s: float) -> bytes:
    at = int((time.time() - age_s) * 1000)
    return build_batch([Record(n, at, key.encode(), value, []) for n, key in enumerate(keys)])


async def fill(side: Side) -> int:
    """Three segments; the second ends in markers, the end of the first is superseded. Returns the log end.

    Segments roll by record time, which is what makes three of them.
    """
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics([NewTopic(TOPIC, 1, 1, configs=CONFIGS)])
        await client.produce(TP, batch("abcdefg", b"old", 300))
        await client.produce(TP, batch("hij", b"old", 300))
        await client.produce(TP, batch("hij", b"new", 2))
        connection = await side.connect()
        keys = (await connection.send(ApiVersionsRequest(), 0)).api_keys
        await connection.close()
        if any(key.api_key == ADD_PARTITIONS_TO_TXN for key in keys):
            transactions(side.bootstrap)

            async def open_records() -> int:
                committed = await client.list_offsets({TP: -1}, isolation=Isolation.READ_COMMITTED)
                return (await client.list_offsets({TP: -1}))[TP].offset - committed[TP].offset

            await eventually(open_records, lambda count: count == 0)  # markers may come a little later
        await client.produce(TP, batch("z", b"last", -200))
        return (await client.list_offsets({TP: -1}))[TP].offset


def transactions(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "c03"})
    producer.init_transactions(30)
    for finish in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(TOPIC, key=b"t", value=b"in a transaction")
        finish(30)


@pytest.fixture(scope="module")
def end(side: Side) -> int:
    """The log end of the topic, once it is compacted."""
    return asyncio.run(compacted(side))


async def compacted(side: Side) -> int:
    end = await fill(side)
    async with ClusterClient(side.bootstrap) as client:

        async def values() -> dict[bytes | None, list[bytes | None]]:
            found: dict[bytes | None, list[bytes | None]] = {}
            offset = 0
            while offset < end:
                fetched = await client.fetch(TP, offset)
                for record in decode_batches(fetched.records):
                    found.setdefault(record.key, []).append(record.value)
                *_, (_, last) = iter_headers(fetched.records)
                offset = last.next_offset
            return found

        found = await eventually(
            values, lambda got: [got[key] for key in (b"h", b"i", b"j")] == [[b"new"]] * 3
        )
        assert {key: found[key] for key in (b"a", b"g", b"z")} == {
            b"a": [b"old"],
            b"g": [b"old"],
            b"z": [b"last"],
        }
    return end


async def test_every_fetch_gets_on(side: Side, end: int) -> None:
    async with ClusterClient(side.bootstrap) as client:
        for offset in range(end):
            fetched = await client.fetch(TP, offset)
            *_, (_, last) = iter_headers(fetched.records)
            assert last.last_offset >= offset, f"a fetch at {offset} does not get on"


def test_clients_get_to_the_end(side: Side, end: int) -> None:
    for offset in range(end):
        assert librdkafka(side.bootstrap, offset) == end
    done = subprocess.run(  # in a process of its own: importing kafka-python warns
        [sys.executable, "-c", PYTHON, side.bootstrap, TOPIC, str(end)],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(end)] * end


def librdkafka(bootstrap: str, offset: int) -> int:
    """Position when the end event comes."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "c03", "enable.partition.eof": True,
        "enable.auto.commit": False, "isolation.level": "read_committed",
    })  # fmt: skip
    try:
        consumer.assign([Partition(TOPIC, 0, offset)])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                return int(message.offset())
        raise AssertionError(f"librdkafka at {offset}: no end event")
    finally:
        consumer.close()


PYTHON = """
import sys, time
from kafka import KafkaConsumer, TopicPartition
bootstrap, topic, end = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, fetch_max_wait_ms=50)
tp = TopicPartition(topic, 0)
consumer.assign([tp])
for offset in range(end):
    consumer.seek(tp, offset)
    deadline = time.monotonic() + 30
    while consumer.position(tp) < end and time.monotonic() < deadline:
        consumer.poll(timeout_ms=100)
    print(consumer.position(tp))
consumer.close()
"""


def kafkajs() -> Path:
    """Where node finds the package; installed once. Skips aloud without node, npm or a registry."""
    home = Path(os.environ.get("INTEROP_HOME", Path.home() / ".cache" / "isthmus-interop")) / "kafkajs"
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("KafkaJS not tested: no node or npm on PATH")
    if not (home / "node_modules" / "kafkajs").is_dir():
        home.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(home), "kafkajs@2.2.4"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            pytest.skip(f"KafkaJS not tested: npm cannot install it: {done.stderr[-300:]}")
    return home


@pytest.mark.interop
def test_kafkajs_gets_to_the_end(side: Side, end: int) -> None:
    done = subprocess.run(
        ["node", "-e", KAFKAJS, side.bootstrap, TOPIC, str(end)],
        cwd=kafkajs(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["end"] * end


KAFKAJS = """
const { Kafka, logLevel } = require('kafkajs')
const [bootstrap, topic, end] = process.argv.slice(1)
const consumer = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR }).consumer({ groupId: 'c03-js' })
const run = async () => {
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  let waiting = () => {}
  const last = () => new Promise((done) => { waiting = done })
  let reached = last()
  await consumer.run({ autoCommit: false, eachMessage: async ({ message }) => {
    if (Number(message.offset) === Number(end) - 1) waiting()
  } })
  await reached
  for (let offset = 0; offset < Number(end); offset++) {
    reached = last()
    consumer.seek({ topic, partition: 0, offset: String(offset) })
    await reached
    console.log('end')
  }
  process.exit(0)
}
run().catch((error) => { console.error(error); process.exit(1) })
"""
