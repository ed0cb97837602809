"""Reading a topic whole, as the judge of what Java programs wrote."""

from collections.abc import Sequence

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType


def create(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)


def produce(bootstrap: str, topic: str, records: Sequence[tuple[str, str]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(60) == 0


def partitions_of(bootstrap: str, topic: str) -> list[int]:
    """Empty when the topic is not there."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.list_topics(timeout=30).topics
    return sorted(described[topic].partitions) if topic in described else []


def setting(bootstrap: str, topic: str, name: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs([resource])
    return str(found[resource].result(30)[name].value)


def read(bootstrap: str, topic: str, *, committed: bool = True) -> list[tuple[str, str]]:
    """(key, value) of every record below the end (read committed: the last stable offset), by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
        }
    )
    try:
        numbers = partitions_of(bootstrap, topic)
        consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
        ended: set[int] = set()
        records: list[tuple[int, int, str, str]] = []
        while len(ended) < len(numbers):
            message = consumer.poll(30)
            assert message is not None, f"{topic} does not end"
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                ended.add(message.partition())
                continue
            key, value = message.key() or b"", message.value() or b""
            records.append((message.partition(), message.offset(), key.decode(), value.decode()))
    finally:
        consumer.close()
    return [(key, value) for _, _, key, value in sorted(records)]
