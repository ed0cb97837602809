"""What tests of consumer groups on one broker share: a topic, records in it, positions and members."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.support.group_member import BOUND_S

PARTITIONS = 6


def make_topic(broker: BrokerProcess, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(BOUND_S)
    return topic


def produce(broker: BrokerProcess, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for number in values:
        producer.produce(topic, key=b"%d" % number, value=b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(BOUND_S) == 0


def committed(broker: BrokerProcess, group: str, topic: str) -> dict[int, int]:
    """Through the admin client: partitions with a position."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = ConsumerGroupTopicPartitions(group)
    result = admin.list_consumer_group_offsets([wanted])[group].result(BOUND_S)
    return {
        each.partition: each.offset
        for each in result.topic_partitions
        if each.topic == topic and each.offset >= 0
    }


def member_ids(broker: BrokerProcess, group: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(BOUND_S)
    return {member.member_id for member in described.members}
