"""C16: a topic is deleted and made anew while one replica is away: nothing of the old one comes back."""

import asyncio
import time

import pytest
from confluent_kafka.admin import NewTopic

from tests.support.broker import Cluster
from tests.support.commands import isthmus
from tests.support.moves import reassign
from tests.support.slow import slow
from tests.support.three_brokers import StartThree, admin, consume, create, in_sync, leader, produce
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster
OLD = [b"A-%d" % number for number in range(500)]
NEW = [b"B-%d" % number for number in range(20)]


def delete(cluster: Cluster, topic: str) -> None:
    started = time.monotonic()
    client = admin(cluster)
    for future in client.delete_topics([topic], operation_timeout=30).values():
        future.result(30)
    wait_until(lambda: topic not in admin(cluster).list_topics(timeout=10).topics, "the topic is gone")
    assert time.monotonic() - started < 30


def make_anew(cluster: Cluster, topic: str) -> None:
    """On brokers 1 and 2: one that is away gets no replica."""
    client = admin(cluster)
    new = NewTopic(topic, 1, replica_assignment=[[1, 2]])
    for future in client.create_topics([new]).values():
        future.result(30)
    assert produce(cluster, topic, NEW) == NEW


def assert_only_new(cluster: Cluster, topic: str) -> None:
    """Broker 3 gets a replica, leads and serves the new topic's records only; all replicas are equal."""
    asyncio.run(reassign(cluster, topic, [3, 1, 2]))
    wait_until(lambda: in_sync(cluster, topic) == [1, 2, 3], f"{topic} in sync")
    done = isthmus("elect", "--cluster", cluster.bootstrap, "--preferred", "--topic", topic)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: leader(cluster, topic) == 3, f"broker 3 leads {topic}")
    assert consume(cluster, topic, len(NEW)) == NEW
    compared = isthmus("replicas", "compare", "--cluster", cluster.bootstrap, "--topic", topic)
    assert compared.returncode == 0, compared.stdout + compared.stderr


def test_records_of_the_old_topic_never_appear_in_the_new_one(start_three: StartThree) -> None:
    made = start_three()
    topics = ("away", "dying")
    for topic in topics:
        create(made, topic, (3, 1, 2))
        assert produce(made, topic, OLD) == OLD

    made.brokers[3].kill()
    wait_until(lambda: leader(made, "away") in (1, 2), "another leader")
    delete(made, "away")
    make_anew(made, "away")
    made.brokers[3].start()
    assert_only_new(made, "away")
    assert made.brokers[3].output.count("away-0") >= 1, "one line says what became of the old directory"
    kept = [
        path.name for path in (made.brokers[3].directory / "data" / "log").iterdir() if "away-0" in path.name
    ]
    assert all(name == "away-0" or name.endswith(("-stray", "-delete")) for name in kept), kept

    # The broker dies in the middle of the deletion.
    client = admin(made)
    futures = client.delete_topics(["dying"], operation_timeout=30)
    made.brokers[3].kill()
    for future in futures.values():
        future.result(30)
    wait_until(lambda: "dying" not in admin(made).list_topics(timeout=10).topics, "the topic is gone")
    make_anew(made, "dying")
    made.brokers[3].start()
    assert_only_new(made, "dying")


@slow("seven starts of brokers")
def test_a_whole_cluster_restarts_between_deletion_and_creation(start_three: StartThree) -> None:
    made = start_three()
    create(made, "t", (3, 1, 2))
    assert produce(made, "t", OLD) == OLD
    made.brokers[3].kill()
    wait_until(lambda: leader(made, "t") in (1, 2), "another leader")
    delete(made, "t")
    for number in (1, 2):
        made.brokers[number].kill()
    for number in (1, 2):
        made.brokers[number].launch()
    for number in (1, 2):
        made.brokers[number].wait_ready()
    make_anew(made, "t")
    made.brokers[3].start()
    assert_only_new(made, "t")
