"""One scenario with confluent-kafka of any version: `confluent_client.py BOOTSTRAP SCENARIO TOPIC`.

Runs in an environment of its own, so it imports nothing of this repository. Exit code 0 done, 77 this version
has no such feature, anything else a failure whose last line says why.
"""

import sys
import time
import uuid

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

BOUND_S = 40
ROWS = 200


def value(number):
    return b"value-%d " % number + b"compressible " * 20


def produce(bootstrap, topic, rows, **settings):
    failed = []
    names = {name.replace("_", "."): text for name, text in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, **names})
    for number in rows:
        producer.produce(
            topic, value(number), b"k", on_delivery=lambda error, _: error and failed.append(str(error))
        )
    assert producer.flush(BOUND_S) == 0, "not all was delivered"
    assert not failed, failed[:3]


def consume(bootstrap, topic, count, group, **settings):
    """Values in the order in which they came, and what is committed at the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): text for name, text in settings.items()},
        }
    )
    consumer.subscribe([topic])
    found, ends = [], time.monotonic() + BOUND_S
    while len(found) < count and time.monotonic() < ends:
        for message in consumer.consume(100, 0.5):
            if message.error() is None:
                found.append(message.value())
            else:
                assert (
                    message.error().code() == KafkaError._PARTITION_EOF
                    or message.error().retriable()
                    or (message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART)
                ), message.error()
    if found:
        consumer.commit(asynchronous=False)
    consumer.close()
    return found


def codec(bootstrap, topic, name):
    produce(bootstrap, topic, range(ROWS), compression_type=name)
    assert consume(bootstrap, topic, ROWS, topic) == [value(number) for number in range(ROWS)]


def group(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(BOUND_S)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 300,
    }
    held = {0: set(), 1: set()}
    members = []
    for number in held:
        member = Consumer(settings)

        def assigned(_, partitions, number=number):
            held[number] = {each.partition for each in partitions}

        member.subscribe([topic], on_assign=assigned, on_revoke=lambda *_, n=number: held[n].clear())
        members.append(member)
    ends = time.monotonic() + BOUND_S
    while not (len(held[0]) == len(held[1]) == 2 and held[0] | held[1] == {0, 1, 2, 3}):
        assert time.monotonic() < ends, f"they hold {held}"
        for member in members:
            member.poll(0.1)
    for member in members:
        member.close()
    produce(bootstrap, topic, range(ROWS))
    assert len(consume(bootstrap, topic, ROWS, topic)) == ROWS
    produce(bootstrap, topic, range(ROWS, ROWS + 10))
    assert sorted(consume(bootstrap, topic, 10, topic)) == sorted(map(value, range(ROWS, ROWS + 10)))
    reader = Consumer(settings)
    committed = reader.committed([TopicPartition(topic, each) for each in range(4)], timeout=BOUND_S)
    assert sum(max(each.offset, 0) for each in committed) == ROWS + 10, committed
    reader.close()


def admin(bootstrap, topic):
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "3600000"})])[topic].result(BOUND_S)
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(BOUND_S)
    ends = time.monotonic() + BOUND_S
    while len(client.list_topics(topic, timeout=BOUND_S).topics[topic].partitions) != 3:
        assert time.monotonic() < ends
        time.sleep(0.05)
    resource = ConfigResource("topic", topic)
    (described,) = client.describe_configs([resource]).values()
    assert described.result(BOUND_S)["retention.ms"].value == "3600000"
    (altered,) = client.alter_configs(
        [ConfigResource("topic", topic, set_config={"retention.ms": "7200000"})]
    ).values()
    altered.result(BOUND_S)
    produce(bootstrap, topic, range(10))
    assert len(consume(bootstrap, topic, 10, topic)) == 10
    if hasattr(client, "list_consumer_groups"):
        listed = client.list_consumer_groups(request_timeout=BOUND_S).result()
        assert topic in {each.group_id for each in listed.valid}, listed.errors
        client.describe_consumer_groups([topic], request_timeout=BOUND_S)[topic].result()
        client.delete_consumer_groups([topic], request_timeout=BOUND_S)[topic].result()
    else:
        assert topic in {each.id for each in client.list_groups(timeout=BOUND_S)}
    client.delete_topics([topic])[topic].result(BOUND_S)
    while topic in client.list_topics(timeout=BOUND_S).topics:
        assert time.monotonic() < ends
        time.sleep(0.05)


def idempotent(bootstrap, topic):
    produce(bootstrap, topic, range(ROWS), enable_idempotence=True)
    assert consume(bootstrap, topic, ROWS, topic) == [value(number) for number in range(ROWS)]


def transactions(bootstrap, topic):
    produce(bootstrap, topic, range(1))
    source = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    source.subscribe([topic])
    first, ends = None, time.monotonic() + BOUND_S
    while first is None or first.error() is not None:
        assert time.monotonic() < ends, "nothing to read"
        first = source.poll(0.5)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{uuid.uuid4()}"})
    producer.init_transactions(BOUND_S)
    producer.begin_transaction()
    for number in range(100, 110):
        producer.produce(topic, value(number))
    producer.flush(BOUND_S)
    producer.abort_transaction(BOUND_S)
    producer.begin_transaction()
    for number in range(1, 11):
        producer.produce(topic, value(number))
    positions = source.position(source.assignment())
    producer.send_offsets_to_transaction(positions, source.consumer_group_metadata(), BOUND_S)
    producer.commit_transaction(BOUND_S)
    committed = source.committed(source.assignment(), timeout=BOUND_S)
    assert [each.offset for each in committed] == [each.offset for each in positions], committed
    source.close()
    wanted = [value(number) for number in range(11)]
    assert consume(bootstrap, topic, 11, f"{topic}-2", isolation_level="read_committed") == wanted
    assert len(consume(bootstrap, topic, 21, f"{topic}-3", isolation_level="read_uncommitted")) == 21


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
    print("confluent-kafka", confluent_kafka.version(), "librdkafka", confluent_kafka.libversion()[0])
    SCENARIOS[sys.argv[2]](sys.argv[1], sys.argv[3])
