"""C15: two sites that shall lose nothing, one is lost: the other has every record, and one step writes again.

Two brokers in each site, four replicas of everything, `min.insync.replicas` 3, so that each acknowledged
record is in both sites. A third place has a ZooKeeper server only, which breaks ties.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from tests.support.acknowledged import Load, assert_nothing_lost, read_all
from tests.support.broker import Cluster
from tests.support.stretched import RunningTopology
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster
SITES = {"east": {1, 2}, "west": {3, 4}}
DOCUMENT: dict[str, Any] = {
    "version": 1,
    "name": "two-sites",
    "datacenters": {"east": {}, "west": {}, "tie": {}},
    "network": {"default": {"delay": "1ms"}},
    "clusters": {
        "main": {
            "datacenter": "tie",
            "zookeeper": {
                "servers": [
                    {"id": number, "datacenter": site} for number, site in enumerate((*SITES, "tie"), 1)
                ]
            },
            "brokers": [
                {"id": number, "datacenter": site} for site, ids in SITES.items() for number in sorted(ids)
            ],
            "settings": {
                "default.replication.factor": 4,
                "min.insync.replicas": 3,
                "offsets.topic.replication.factor": 4,
                "offsets.topic.num.partitions": 1,
                "zookeeper.session.timeout.ms": 3000,
                "replica.lag.time.max.ms": 3000,
            },
        }
    },
}


def replicas(running: RunningTopology, topic: str) -> list[set[int]]:
    found = running.admin().list_topics(topic, timeout=30).topics[topic].partitions
    return [set(each.replicas) for each in found.values()]


def min_isr(running: RunningTopology, topic: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    client = running.admin("west")
    value = client.describe_configs([resource])[resource].result(30)["min.insync.replicas"].value
    assert value is not None
    return str(value)


def refusal(running: RunningTopology, topic: str) -> str:
    """What a producer without retries is told for one acks=all record; must come soon."""
    heard: list[str] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        heard.append("" if error is None else error.name())

    settings = {"bootstrap.servers": running.bootstrap("west"), "acks": "all", "retries": 0}
    producer = Producer({**settings, "message.timeout.ms": 20_000, "log_level": 0})
    producer.produce(topic, b"refused", partition=0, on_delivery=delivered)
    assert producer.flush(30) == 0
    return heard[0]


@pytest.mark.timeout(400)
def test_one_of_two_sites_is_lost_and_comes_back(tmp_path: Path) -> None:
    with RunningTopology(DOCUMENT, tmp_path / "up") as running:
        new = NewTopic("t", num_partitions=2, replication_factor=4)
        running.admin().create_topics([new])["t"].result(60)
        running.wait_isr("t", [1, 2, 3, 4])
        with Load(running.bootstrap("west"), "t", 2, "a", **{"client.rack": "west"}) as load:
            load.more()
            running.admin().create_partitions([NewPartitions("t", 6)])["t"].result(60)
            running.wait_isr("t", [1, 2, 3, 4])
            assert all(len(each & ids) == 2 for each in replicas(running, "t") for ids in SITES.values())

            running.control("kill", "datacenter:east")
            states = {row["name"]: row["state"] for row in running.control("status")}
            assert [states[f"main-broker-{number}"] for number in (1, 2, 3, 4)] == ["stopped"] * 2 + [
                "ready"
            ] * 2
            running.wait_isr("t", [3, 4], site="west")
            stopped = dict(load.acknowledged)
            assert refusal(running, "t") == "NOT_ENOUGH_REPLICAS"
            found = read_all(running.bootstrap("west"), "t", 6)
            assert not [value for value in stopped if value not in found]

            undo = tmp_path / "undo.json"
            where = ("--cluster", "main@west", "-f", str(running.file), "--undo", str(undo), "--yes")
            running.command("configs", "min-isr", "lower", "--to", "2", *where)
            assert min_isr(running, "t") == "2"
            load.more()
            assert refusal(running, "t") == ""
            running.command("configs", "min-isr", "restore", *where, code=3)
            assert min_isr(running, "t") == "2"

            running.control("start", "datacenter:east")
            running.wait_isr("t", [1, 2, 3, 4])
            wait_until(lambda: internal_in_sync(running), "the groups' topic in sync")
            running.command("configs", "min-isr", "restore", *where)
            assert min_isr(running, "t") == "3"
            assert not undo.exists()
            load.more()
        assert not load.refused
        found = read_all(running.bootstrap("east"), "t", 6, **{"client.rack": "east"})
        assert_nothing_lost(load, found)
        wait_until(lambda: running.same_replicas("t"), "the same bytes on all four brokers")


def internal_in_sync(running: RunningTopology) -> bool:
    topics = running.admin().list_topics(timeout=30).topics.values()
    return all(len(part.isrs) == 4 for topic in topics for part in topic.partitions.values())


def test_a_cluster_of_which_only_some_brokers_have_a_place_is_refused(
    cluster: Callable[[int], Cluster],
) -> None:
    made = cluster(0)
    made.add(1, rack="east")
    made.add(2)
    made.start()
    admin = AdminClient({"bootstrap.servers": made.bootstrap, "log_level": 0})
    wait_until(lambda: len(admin.list_topics(timeout=30).brokers) == 2, "both brokers are known")
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(60)
    assert "brokers 2 have no broker.rack" in refused.value.args[0].str()
