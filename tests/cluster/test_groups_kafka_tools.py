"""Consumer groups by Kafka's own tools: kafka-consumer-groups, and the formatters of the offsets topic."""

from __future__ import annotations

import itertools
import re

import pytest

from tests.support.apache_kafka import kafka_tool
from tests.support.broker import BrokerProcess
from tests.support.group_member import GroupMember
from tests.support.groups import PARTITIONS, committed, make_topic, produce
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.interop, pytest.mark.slow]

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_numbers = itertools.count()


@pytest.fixture
def name(broker: BrokerProcess) -> str:
    """A topic with six partitions; tests call their group the same."""
    return make_topic(broker, f"group-tools-{next(_numbers)}")


def test_consumer_group_tool(broker: BrokerProcess, name: str, members: list[GroupMember]) -> None:
    at = ("--bootstrap-server", broker.bootstrap)
    produce(broker, name, range(60))
    members.append(GroupMember(broker.bootstrap, name, name, client_id="reader").start())
    wait_until(lambda: sum(committed(broker, name, name).values()) == 60, "everything is committed")
    assert name in kafka_tool(GROUPS, *at, "--list").splitlines()
    described = kafka_tool(GROUPS, *at, "--describe", "--group", name)
    rows = [line.split() for line in described.splitlines() if line.startswith(name)]
    # GROUP TOPIC PARTITION [LEADER-EPOCH] CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
    assert sorted(row[2] for row in rows) == [str(number) for number in range(PARTITIONS)]
    assert all(row[-6:-3] == ["10", "10", "0"] for row in rows), described
    assert all(row[-2:] == ["/127.0.0.1", "reader"] for row in rows), described
    state = kafka_tool(GROUPS, *at, "--describe", "--group", name, "--state")
    assert "Stable" in state
    verbose = kafka_tool(GROUPS, *at, "--describe", "--group", name, "--members", "--verbose")
    assert "reader" in verbose
    members.pop().stop()
    reset = ("--reset-offsets", "--group", name, "--topic", name, "--to-offset", "3", "--execute")
    kafka_tool(GROUPS, *at, *reset)
    assert committed(broker, name, name) == dict.fromkeys(range(PARTITIONS), 3)
    kafka_tool(GROUPS, *at, "--delete-offsets", "--group", name, "--topic", f"{name}:0")
    assert committed(broker, name, name) == dict.fromkeys(range(1, PARTITIONS), 3)
    assert "successful" in kafka_tool(GROUPS, *at, "--delete", "--group", name)
    assert name not in kafka_tool(GROUPS, *at, "--list").splitlines()


def test_kafkas_formatters_read_our_offsets_topic(
    broker: BrokerProcess, name: str, members: list[GroupMember]
) -> None:
    produce(broker, name, range(60))
    members.append(
        GroupMember(broker.bootstrap, name, name, client_id="reader", group_instance_id="i").start()
    )
    wait_until(lambda: sum(committed(broker, name, name).values()) == 60, "everything is committed")
    at = ("--bootstrap-server", broker.bootstrap, "--topic", "__consumer_offsets", "--from-beginning")

    def read(formatter: str) -> str:
        formatter = f"org.apache.kafka.tools.consumer.{formatter}"
        for patience_ms in ("5000", "40000"):  # it always waits in full, and a busy machine needs the second
            printed = kafka_tool(CONSOLE, *at, "--formatter", formatter, "--timeout-ms", patience_ms)
            if f'"{name}"' in printed:
                break
        return printed

    offsets = [line for line in read("OffsetsMessageFormatter").splitlines() if f'"{name}"' in line]
    for partition in range(PARTITIONS):
        assert any(
            re.search(rf'"partition":{partition}\b', line) and re.search(r'"offset":10\b', line)
            for line in offsets
        ), offsets
    assert any('"version":3' in line for line in offsets)
    groups = [line for line in read("GroupMetadataMessageFormatter").splitlines() if f'"{name}"' in line]
    assert any(
        '"protocolType":"consumer"' in line
        and '"groupInstanceId":"i"' in line
        and '"clientId":"reader"' in line
        for line in groups
    ), groups
