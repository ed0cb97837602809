"""The example of a stretched cluster, run by `isthmus up`: three sites, slow links, cuts, a lost site."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.support.acknowledged import Load, assert_nothing_lost, read_all
from tests.support.stretched import ROOT, RunningTopology, document_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster
EXAMPLE = ROOT / "examples" / "stretched-three-sites.yaml"
SITES = {1: "london", 2: "paris", 3: "zurich"}
QUICK = {
    "zookeeper.session.timeout.ms": 3000,
    "replica.lag.time.max.ms": 3000,
    "offsets.topic.num.partitions": 2,
    "num.partitions": 3,
}
MEGABYTE = 1_000_000
ANSWER_S = 20.0
"""Of `isthmus status` on a busy machine; on a quiet one it takes one to three."""
SAID_S = 60.0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTopology]:
    document = document_of(EXAMPLE)
    document["clusters"]["main"]["settings"].update(QUICK)
    document["clusters"]["main"]["topics"] = {}
    with RunningTopology(document, tmp_path_factory.mktemp("stretched")) as started:
        yield started


@pytest.fixture
def three(running: RunningTopology) -> Iterator[RunningTopology]:
    """Everything up and as declared, before and after."""
    yield running
    running.heal()
    running.control("start", "main")


def create(three: RunningTopology, topic: str, assignment: list[list[int]]) -> None:
    """A topic whose partitions are where the test wants them."""
    new = NewTopic(topic, num_partitions=len(assignment), replica_assignment=assignment)
    three.admin().create_topics([new])[topic].result(60)
    three.wait_isr(topic, [1, 2, 3])


def test_each_site_is_told_addresses_that_lead_over_its_own_links(three: RunningTopology) -> None:
    told = {site: three.admin(site).list_topics(timeout=30).brokers for site in SITES.values()}
    ports = {(site, number): broker.port for site, found in told.items() for number, broker in found.items()}
    assert len(set(ports.values())) == len(ports) == 9
    runtime = three.runtime
    for site in SITES.values():
        for number, home in SITES.items():
            name = f"main-broker-{number}"
            expected = f"{name} for {site}" if site == home else f"{site} -> {name}"
            assert ports[site, number] == runtime.ports[expected]


def test_clients_see_in_which_site_each_broker_is(three: RunningTopology) -> None:
    described = {node.id: node.rack for node in three.admin("paris").describe_cluster().result(30).nodes}
    assert described == SITES
    # A client of its own: one that has met the cut does not dial that broker anew within its five seconds.
    fresh = AdminClient({"bootstrap.servers": three.bootstrap("london")})
    for number, site in SITES.items():
        resource = ConfigResource(ResourceType.BROKER, str(number))
        entries = fresh.describe_configs([resource])[resource].result(60)
        assert entries["broker.rack"].value == site
        assert entries["replica.selector.class"].value.endswith("RackAwareReplicaSelector")


def test_consumers_read_from_the_replica_of_their_own_site(three: RunningTopology) -> None:
    create(three, "near", [[1, 2, 3]])
    producer = Producer({"bootstrap.servers": three.bootstrap("london"), "linger.ms": 5})
    for _ in range(3000):
        producer.produce("near", bytes(1000))
        producer.poll(0)
    assert producer.flush(60) == 0

    def carried(**settings: str) -> int:
        """Bytes from london, where the leader is, to paris, while a consumer there reads everything."""
        before = int(three.net()["london", "paris"]["bytes"])
        consumer = Consumer(
            {
                "bootstrap.servers": three.bootstrap("paris"),
                "group.id": "near",
                "enable.auto.commit": False,
                **settings,
            }
        )
        consumer.assign([TopicPartition("near", 0, 0)])
        count = 0

        def read() -> bool:
            nonlocal count
            count += len(consumer.consume(500, 0.2))
            return count >= 3000

        wait_until(read, "3000 records")
        consumer.close()
        return int(three.net()["london", "paris"]["bytes"]) - before

    near, far = carried(**{"client.rack": "paris"}), carried()
    assert far > 3 * MEGABYTE
    assert near < far / 2  # the first fetches go to the leader, which then names the replica to read from


def test_a_write_takes_what_the_distances_say(three: RunningTopology) -> None:
    create(three, "slow", [[1, 2, 3]])
    three.net("set", **{"from": None, "to": None, "changes": {"delay_s": 0.04, "jitter_s": 0.0}})
    producer = Producer({"bootstrap.servers": three.bootstrap("london"), "acks": "all"})
    took: list[float] = []
    for _ in range(5):
        producer.produce("slow", b"x", on_delivery=lambda _, message: took.append(message.latency() or 0.0))
        assert producer.flush(60) == 0
    assert min(took) >= 0.08  # the farthest follower's round trip; the leader is near


def test_the_commands_show_and_cut_and_say_what_is_cut(three: RunningTopology) -> None:
    file = str(three.file)
    shown = three.command("net", "cut", file, "--from", "paris", "--to", "london")
    assert shown.splitlines()[1].split()[:3] == ["paris", "london", "CUT"]
    told = three.command("status", file, code=3)
    assert "links cut: paris->london; isthmus net heal" in told
    assert re.search(r"^main: \d+ partitions? of \d+ topics?: ", told, re.MULTILINE), told


def test_status_says_within_seconds_what_a_cut_site_leaves_and_that_it_is_back(
    three: RunningTopology,
) -> None:
    create(three, "watched", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    three.cut("paris")
    told = wait_status(three, r"ZooKeeper serves without main-zookeeper-2: no quorum")
    assert "paris reaches no other site" in told
    wait_status(three, r"ZooKeeper has not heard from main-broker-2 for most of a session")
    wait_status(three, r"^main: (?!.*no writes).* under-replicated")  # others lead by now
    row = cluster_row(three, 3)
    assert (row["zookeeper_serves"], row["brokers_unheard"]) == (True, [2])
    three.heal()
    wait_status(three, r"^main: .*: all in sync$", code=0)
    assert cluster_row(three, 0)["problem"] == ""


def test_status_says_within_seconds_that_no_site_reaches_another_and_nothing_is_written(
    three: RunningTopology,
) -> None:
    create(three, "nowhere", [[1, 2, 3]])
    three.net("set", **{"from": None, "to": None, "changes": {"up": False}})
    told = wait_status(
        three, r"(?s)no ZooKeeper server serves.*no partition acknowledges a write with acks=all"
    )
    assert "no site reaches another one; isthmus net heal" in told
    assert "main-zookeeper-1, main-zookeeper-2, main-zookeeper-3: no quorum" in told
    assert "all in sync" not in told
    row = cluster_row(three, 3)
    assert row["zookeeper_serves"] is False
    assert "nowhere-0" in row["unwritable"]
    assert row["partitions"]["under_min_isr"] is None, "nobody can look it up"
    three.heal()
    wait_status(three, r"^main: .*: all in sync$", code=0)


def wait_status(three: RunningTopology, pattern: str, *, code: int = 3) -> str:
    """What `isthmus status` says once it says this; each answer has to come within seconds."""
    end = time.monotonic() + SAID_S
    while True:
        done, took = three.status()
        assert took < ANSWER_S, done.stdout
        if done.returncode == code and re.search(pattern, done.stdout, re.MULTILINE):
            return done.stdout
        assert time.monotonic() < end, f"not {pattern} with {code} but {done.returncode}:\n{done.stdout}"


def cluster_row(three: RunningTopology, code: int) -> dict[str, Any]:
    rows = json.loads(three.command("status", str(three.file), "--json", code=code))
    [found] = [row for row in rows if row["kind"] == "cluster"]
    return dict(found)


@pytest.mark.timeout(400)
def test_a_site_that_is_cut_off_and_then_killed_loses_nothing(three: RunningTopology) -> None:
    create(three, "kept", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    outside = Load(three.bootstrap("london"), "kept", 3, "london")
    inside = Load(
        three.bootstrap("zurich"),
        "kept",
        3,
        "zurich",
        **{"message.timeout.ms": 5000, "enable.idempotence": False},
    )
    with outside:
        outside.more()
        with inside:
            inside.more()
            three.cut("zurich")
            outside.more(300)  # leaders of zurich have moved; min.insync.replicas 2 of 3 still holds
            before = len(inside.acknowledged)
            outside.more(300)
        assert len(inside.acknowledged) == before, "a site without the others acknowledged records"
        assert inside.refused
        three.wait_isr("kept", [1, 2], site="london")
        three.control("kill", "datacenter:zurich")
        three.heal()
        outside.more(300)
        three.control("start", "datacenter:zurich")
        three.wait_isr("kept", [1, 2, 3])
        outside.more()
    found = read_all(three.bootstrap("zurich"), "kept", 3, **{"client.rack": "zurich"})
    assert_nothing_lost(outside, found)
    assert_nothing_lost(inside, found, once=False)
    assert not outside.refused
