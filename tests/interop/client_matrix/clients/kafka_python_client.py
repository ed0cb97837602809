"""One scenario with kafka-python of any version: `kafka_python_client.py BOOTSTRAP SCENARIO TOPIC`.

Runs in an environment of its own, so it imports nothing of this repository. Exit code 0 done, 77 this version
has no such feature, anything else a failure whose last line says why.
"""

import itertools
import sys
import threading
import time
import uuid

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic

BOUND_S = 40
ROWS = 200
NO_SUCH_FEATURE = 77
VERSION = tuple(int(part) for part in kafka.__version__.split(".")[:2])


def value(number):
    return b"value-%d " % number + b"compressible " * 20


def produce(bootstrap, topic, rows, **settings):
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=50, **settings)
    futures = [producer.send(topic, value(number), key=b"k") for number in rows]
    producer.flush(BOUND_S)
    for future in futures:
        future.get(BOUND_S)
    producer.close()


def consumer_of(bootstrap, topic, group, **settings):
    return KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=BOUND_S * 1000,
        heartbeat_interval_ms=300,
        metadata_max_age_ms=2000,  # a subscription may be forgotten: FINDINGS.md
        **settings,
    )


def consume(bootstrap, topic, count, group, **settings):
    consumer = consumer_of(bootstrap, topic, group, **settings)
    found = [row.value for row in itertools.islice(consumer, count)]
    if found:
        consumer.commit()
    consumer.close()
    return found


def codec(bootstrap, topic, name):
    if name == "zstd" and VERSION < (2, 0):
        sys.exit(NO_SUCH_FEATURE)
    produce(bootstrap, topic, range(ROWS), compression_type=None if name == "none" else name)
    assert consume(bootstrap, topic, ROWS, topic) == [value(number) for number in range(ROWS)]


def group(bootstrap, topic):
    administrator = KafkaAdminClient(bootstrap_servers=bootstrap)
    administrator.create_topics([NewTopic(topic, 4, 1)])
    administrator.close()
    held = [set(), set()]
    stop = threading.Event()

    def run(number):
        member = consumer_of(bootstrap, topic, topic)
        while not stop.is_set():
            member.poll(timeout_ms=100)
            held[number] = {each.partition for each in member.assignment()}
        member.close()

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in (0, 1)]
    for thread in threads:
        thread.start()
    ends = time.monotonic() + BOUND_S
    while not (len(held[0]) == len(held[1]) == 2 and held[0] | held[1] == {0, 1, 2, 3}):
        assert time.monotonic() < ends, f"they hold {held}"
        time.sleep(0.05)
    stop.set()
    for thread in threads:
        thread.join(BOUND_S)
    produce(bootstrap, topic, range(ROWS))
    assert len(consume(bootstrap, topic, ROWS, topic)) == ROWS
    produce(bootstrap, topic, range(ROWS, ROWS + 10))
    assert sorted(consume(bootstrap, topic, 10, topic)) == sorted(map(value, range(ROWS, ROWS + 10)))
    reader = consumer_of(bootstrap, topic, topic)
    assert sum(reader.committed(TopicPartition(topic, each)) or 0 for each in range(4)) == ROWS + 10
    reader.close()


def admin(bootstrap, topic):
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    client.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "3600000"})])
    client.create_partitions({topic: NewPartitions(3)})
    ends = time.monotonic() + BOUND_S
    while len(client.describe_topics([topic])[0]["partitions"]) != 3:
        assert time.monotonic() < ends
        time.sleep(0.05)
    assert "3600000" in str(client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))
    client.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "7200000"})]
    )
    produce(bootstrap, topic, range(10))
    assert len(consume(bootstrap, topic, 10, topic)) == 10
    offsets = "list_group_offsets" if hasattr(client, "list_group_offsets") else "list_consumer_group_offsets"
    groups = "list_groups" if hasattr(client, "list_groups") else "list_consumer_groups"
    describe = "describe_groups" if hasattr(client, "describe_groups") else "describe_consumer_groups"
    delete = "delete_groups" if hasattr(client, "delete_groups") else "delete_consumer_groups"
    assert topic in str(getattr(client, groups)())
    assert topic in str(getattr(client, describe)([topic]))
    assert "10" in str(getattr(client, offsets)(topic if offsets.startswith("list_consumer") else [topic]))
    getattr(client, delete)([topic])
    assert f"'{topic}'" not in str(getattr(client, groups)())
    client.delete_topics([topic])
    while topic in client.list_topics():
        assert time.monotonic() < ends
        time.sleep(0.05)
    client.close()


def idempotent(bootstrap, topic):
    if VERSION < (2, 1):
        sys.exit(NO_SUCH_FEATURE)
    produce(bootstrap, topic, range(ROWS), enable_idempotence=True)
    assert consume(bootstrap, topic, ROWS, topic) == [value(number) for number in range(ROWS)]


def transactions(bootstrap, topic):
    if VERSION < (2, 1):
        sys.exit(NO_SUCH_FEATURE)
    produce(bootstrap, topic, range(1))
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-{uuid.uuid4()}")
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(100, 110):
        producer.send(topic, value(number))
    producer.flush(BOUND_S)
    producer.abort_transaction()
    producer.begin_transaction()
    for number in range(1, 11):
        producer.send(topic, value(number))
    offsets = {TopicPartition(topic, 0): kafka.structs.OffsetAndMetadata(1, "", -1)}
    producer.send_offsets_to_transaction(offsets, topic)
    producer.commit_transaction()
    producer.close()
    reader = consumer_of(bootstrap, topic, topic)
    assert reader.committed(TopicPartition(topic, 0)) == 1
    reader.close()
    found = consume(bootstrap, topic, 11, f"{topic}-2", isolation_level="read_committed")
    assert found == [value(number) for number in range(11)], found
    assert len(consume(bootstrap, topic, 21, f"{topic}-3")) == 21


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
    print("kafka-python", kafka.__version__)
    SCENARIOS[sys.argv[2]](sys.argv[1], sys.argv[3])
