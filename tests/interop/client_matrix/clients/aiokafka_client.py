"""One scenario with aiokafka of any version: `aiokafka_client.py BOOTSTRAP SCENARIO TOPIC`.

Runs in an environment of its own, so it imports nothing of this repository. Exit code 0 done, 77 this version
has no such feature, anything else a failure whose last line says why.
"""

import asyncio
import sys
import uuid

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

try:
    from aiokafka.admin import NewPartitions, NewTopic
except ImportError:  # before 0.9 it had these from kafka-python
    from kafka.admin import NewPartitions, NewTopic

BOUND_S = 40
ROWS = 200


def value(number):
    return b"value-%d " % number + b"compressible " * 20


async def produce(bootstrap, topic, rows, **settings):
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=50, **settings)
    await producer.start()
    sent = [await producer.send(topic, value(number), key=b"k") for number in rows]
    await asyncio.gather(*sent)
    await producer.stop()


def consumer_of(bootstrap, topic, group, **settings):
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
        metadata_max_age_ms=2000,
        **settings,
    )


async def consume(bootstrap, topic, count, group, **settings):
    consumer = consumer_of(bootstrap, topic, group, **settings)
    await consumer.start()
    found = []
    while len(found) < count:
        found.append((await consumer.getone()).value)
    await consumer.commit()
    await consumer.stop()
    return found


async def codec(bootstrap, topic, name):
    await produce(bootstrap, topic, range(ROWS), compression_type=None if name == "none" else name)
    assert await consume(bootstrap, topic, ROWS, topic) == [value(number) for number in range(ROWS)]


async def group(bootstrap, topic):
    administrator = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await administrator.start()
    await administrator.create_topics([NewTopic(topic, 4, 1)])
    await administrator.close()
    members = [consumer_of(bootstrap, topic, topic) for _ in range(2)]
    await asyncio.gather(*(member.start() for member in members))
    while not all(len(member.assignment()) == 2 for member in members):
        await asyncio.gather(*(member.getmany(timeout_ms=100) for member in members))
    assert len(members[0].assignment() | members[1].assignment()) == 4
    for member in members:
        await member.stop()
    await produce(bootstrap, topic, range(ROWS))
    assert len(await consume(bootstrap, topic, ROWS, topic)) == ROWS
    await produce(bootstrap, topic, range(ROWS, ROWS + 10))
    assert sorted(await consume(bootstrap, topic, 10, topic)) == sorted(map(value, range(ROWS, ROWS + 10)))
    reader = consumer_of(bootstrap, topic, topic)
    await reader.start()
    committed = [await reader.committed(TopicPartition(topic, each)) or 0 for each in range(4)]
    assert sum(committed) == ROWS + 10, committed
    await reader.stop()


async def admin(bootstrap, topic):
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    await client.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "3600000"})])
    await client.create_partitions({topic: NewPartitions(3)})
    while len((await client.describe_topics([topic]))[0]["partitions"]) != 3:
        await asyncio.sleep(0.05)
    await produce(bootstrap, topic, range(10))
    assert len(await consume(bootstrap, topic, 10, topic)) == 10
    assert topic in {each[0] for each in await client.list_consumer_groups()}
    assert topic in str(await client.describe_consumer_groups([topic]))
    offsets = await client.list_consumer_group_offsets(topic)
    assert sum(max(each.offset, 0) for each in offsets.values()) == 10, offsets
    await client.delete_topics([topic])
    while topic in await client.list_topics():
        await asyncio.sleep(0.05)
    await client.close()


async def idempotent(bootstrap, topic):
    await produce(bootstrap, topic, range(ROWS), enable_idempotence=True)
    assert await consume(bootstrap, topic, ROWS, topic) == [value(number) for number in range(ROWS)]


async def transactions(bootstrap, topic):
    await produce(bootstrap, topic, range(1))
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-{uuid.uuid4()}")
    await producer.start()
    await producer.begin_transaction()
    for number in range(100, 110):
        await producer.send_and_wait(topic, value(number))
    await producer.abort_transaction()
    async with producer.transaction():
        for number in range(1, 11):
            await producer.send(topic, value(number))
        await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, topic)
    await producer.stop()
    reader = consumer_of(bootstrap, topic, topic)
    await reader.start()
    assert await reader.committed(TopicPartition(topic, 0)) == 1
    await reader.stop()
    found = await consume(bootstrap, topic, 11, f"{topic}-2", isolation_level="read_committed")
    assert found == [value(number) for number in range(11)], found
    assert len(await consume(bootstrap, topic, 21, f"{topic}-3")) == 21


SCENARIOS = {
    "group": group,
    "admin": admin,
    "idempotent": idempotent,
    "transactions": transactions,
    **{
        name: lambda bootstrap, topic, name=name: codec(bootstrap, topic, name)
        for name in ("none", "gzip", "snappy", "lz4", "zstd")
    },
}

if __name__ == "__main__":
    print("aiokafka", aiokafka.__version__)
    asyncio.run(asyncio.wait_for(SCENARIOS[sys.argv[2]](sys.argv[1], sys.argv[3]), 2 * BOUND_S))
