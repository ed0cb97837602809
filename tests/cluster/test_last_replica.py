"""The last in-sync replica that was killed: no leader without a person's word, which loses nothing."""

import json
import re

import pytest
from confluent_kafka.admin import ResourceType

from broker.control.previous_end import FILE_NAME
from tests.support.broker import Cluster
from tests.support.commands import isthmus
from tests.support.moves import configure
from tests.support.slow import slow
from tests.support.three_brokers import StartThree, consume, create, in_sync, leader, metric, produce
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster
elsewhere = slow("unit tests have the rule")


def last_of_three(cluster: Cluster, topic: str) -> list[bytes]:
    """Broker 1 alone is in sync, has what the others lack, and is killed; returns what was acknowledged."""
    values = produce(cluster, topic, [f"all-{number}".encode() for number in range(100)])
    cluster.brokers[2].kill()
    cluster.brokers[3].kill()
    wait_until(lambda: (leader(cluster, topic), in_sync(cluster, topic)) == (1, [1]), "broker 1 alone")
    values += produce(cluster, topic, [f"one-{number}".encode() for number in range(50)])
    cluster.brokers[1].kill()
    return values


def metrics_url(cluster: Cluster, number: int) -> str:
    found = re.search(r"metrics (http\S+)", cluster.brokers[number].output)
    assert found is not None
    return found[1]


def test_a_killed_last_replica_waits_for_a_word(start_three: StartThree) -> None:
    made = start_three(arguments=("--metrics-port", "0"))
    create(made, "t", (1, 2, 3))
    create(made, "alone", (1,))
    produce(made, "alone", [b"mine"])
    values = last_of_three(made, "t")

    made.brokers[1].start()
    wait_until(lambda: leader(made, "alone") == 1, "a sole replica is back by itself")
    assert leader(made, "t") == -1
    waiting = metric(metrics_url(made, 1), "isthmus_controller_partitions_waiting_for_election")
    assert waiting == 1
    assert re.search(r"t-0 \(broker 1\): no leader.*isthmus elect", made.brokers[1].output)
    told = isthmus("elect", "--cluster", made.bootstrap, "--json")
    assert told.returncode == 3, told.stderr
    [risk] = json.loads(told.stdout)
    assert (risk["topic"], risk["isr"], risk["silent"], risk["would_lead"]) == ("t", [1], [2, 3], 1)
    assert risk["ends"]["1"]["offset"] == 150

    made.brokers[1].stop()  # a clean stop afterwards makes nothing sure again
    for number in (2, 3, 1):
        made.brokers[number].start()
    assert leader(made, "t") == -1
    unsaid = isthmus("elect", "--cluster", made.bootstrap, "--unclean")
    assert unsaid.returncode == 2, "nobody is there to say yes"
    assert "broker 1 leads from 150 on" in unsaid.stderr
    done = isthmus("elect", "--cluster", made.bootstrap, "--unclean", "--yes")
    assert (done.returncode, done.stdout) == (0, "elected: t-0\n"), done.stderr
    wait_until(lambda: in_sync(made, "t") == [1, 2, 3], "all in sync")
    assert leader(made, "t") == 1
    assert consume(made, "t", 150) == values


@elsewhere
def test_a_setting_gives_kafkas_behaviour_also_while_brokers_run(start_three: StartThree) -> None:
    made = start_three()
    create(made, "t", (1, 2, 3))
    for number in made.brokers:
        wanted = {"unclean.last.replica.election.enable": "true"}
        configure(made, ResourceType.BROKER, str(number), wanted)
    values = last_of_three(made, "t")
    made.brokers[1].start()
    wait_until(lambda: leader(made, "t") == 1, "broker 1 leads again by itself")
    assert consume(made, "t", 150) == values


@elsewhere
def test_a_cluster_that_is_killed_at_once_helps_itself_and_after_a_power_cut_who_kept_its_machine_leads(
    start_three: StartThree,
) -> None:
    """All are killed together, twice; then broker 1 finds another boot id and half of its log."""
    made = start_three()
    create(made, "t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    values = produce(made, "t", [f"{number}".encode() * 50 for number in range(200)])
    for broker in made.brokers.values():
        broker.kill()
    made.start()
    for index in range(3):
        wait_until(lambda: in_sync(made, "t", index) == [1, 2, 3], f"t-{index} is all in sync again")  # noqa: B023
    for broker in made.brokers.values():
        broker.kill()
    log = made.brokers[1].directory / "data" / "log"
    (log / FILE_NAME).write_text("another boot")
    segment = log / "t-0" / "00000000000000000000.log"
    with segment.open("rb+") as file:
        file.truncate(segment.stat().st_size // 2)
    made.brokers[1].start()
    wait_until(lambda: leader(made, "t") == -1, "nobody leads: broker 1 may lack what the others have")
    made.brokers[2].start()
    made.brokers[3].start()
    wait_until(lambda: leader(made, "t") in (2, 3), "one that kept its machine leads")
    wait_until(lambda: in_sync(made, "t") == [1, 2, 3], "all in sync")
    assert consume(made, "t", 200) == values
