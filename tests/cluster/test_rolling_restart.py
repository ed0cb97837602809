"""Three brokers are restarted one after the other under load: clients with default settings see no failure.

Each stop hands leadership over first (controlled shutdown). librdkafka's and Java's producers, consumers in
groups of both, and a transactional producer count what failed for good; our own client, which tries nothing
again, counts what had to be tried again. Each restart says how long a producer had no acknowledgement.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker.control import paths
from broker.control.nodes import decode_controller
from broker.control.zookeeper import ZooKeeper
from protocol.client import NO_RETRIES, ClusterClient
from protocol.errors import ErrorCode, ProtocolError
from protocol.errors import KafkaError as OurError
from protocol.records import Record, build_batch
from protocol.types import TopicPartition
from tests.support.apache_kafka import kafka_libraries, kafka_script
from tests.support.broker import Cluster
from tests.support.slow import slow
from tests.support.steady_load import Consuming, Producing
from tests.support.transactions import LEVELS, read_until
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.cluster,
    slow("restarts three brokers under load"),
]
Make = Callable[[int], Cluster]
PARTITIONS = 6
GAP_S = 3.0
"""Of a producer, on a busy machine; `bench.failover` measures it on a quiet one."""
SETTINGS = {
    "zookeeper.session.timeout.ms": "60000",  # nothing here may wait for a session to end
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
}
RETRIABLE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}


@pytest.fixture
def three(cluster: Make) -> Cluster:
    made = cluster(0)
    for number in (1, 2, 3):
        made.add(number, rack=f"r{number}", settings=SETTINGS)
    return made.start()


def in_sync(cluster: Cluster, topic: str) -> bool:
    known = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic, timeout=30)
    partitions = known.topics[topic].partitions.values()
    return bool(partitions) and all(len(each.isrs) == 3 for each in partitions)


class Trying:
    """One acks=all record after the other by a client that tries nothing again: what it was told."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.told: Counter[str] = Counter()
        self.unexpected: list[str] = []
        self._bootstrap, self._topic = bootstrap, topic
        self._end = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    async def _run(self) -> None:
        async with ClusterClient(self._bootstrap, retry=NO_RETRIES) as client:
            turn = 0
            while not self._end.is_set():
                turn += 1
                record = build_batch([Record(0, int(time.time() * 1000), None, b"-1", [])])
                try:
                    await client.produce(TopicPartition(self._topic, turn % PARTITIONS), record)
                    self.told["acknowledged"] += 1
                    continue
                except OurError as error:
                    self.told[error.code.name] += 1
                    if error.code not in RETRIABLE:
                        self.unexpected.append(repr(error))
                except (ProtocolError, OSError) as error:  # the broker has stopped
                    self.told[type(error).__name__] += 1
                client.forget_topic(self._topic)
                await asyncio.sleep(0.01)

    def end(self) -> None:
        self._end.set()
        self._thread.join(60)


async def the_controller(cluster: Cluster) -> int:
    zookeeper = await ZooKeeper.connect(cluster.zookeeper, session_timeout_ms=6000, wait_ms=10_000)
    try:
        node = await zookeeper.get(paths.CONTROLLER)
        return -1 if node is None else decode_controller(node.data)
    finally:
        await zookeeper.close()


def created(cluster: Cluster, bootstrap: str, *topics: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 3) for topic in topics]).values():
        future.result(60)
    for topic in topics:
        wait_until(lambda topic=topic: in_sync(cluster, topic), "all in sync")


def restart_all(
    cluster: Cluster, topics: tuple[str, ...], producing: dict[str, Producing]
) -> dict[str, list[float]]:
    """One after the other, the controller last; the longest gaps of each producer."""
    gaps: dict[str, list[float]] = {name: [] for name in producing}
    first = asyncio.run(the_controller(cluster))
    for number in (*(each for each in cluster.brokers if each != first), first):
        began = time.monotonic()
        assert cluster.brokers[number].stop() == 0
        marks = {name: len(each.acknowledged) for name, each in producing.items()}
        for name, each in producing.items():
            wait_until(
                lambda each=each, at=marks[name]: len(each.acknowledged) > at + 100, "acknowledged without it"
            )
        cluster.brokers[number].start()
        for topic in topics:
            wait_until(lambda topic=topic: in_sync(cluster, topic), "all in sync again")
        for name, each in producing.items():
            gaps[name].append(round(each.longest_gap_s(began, time.monotonic()), 2))
    return gaps


def test_a_rolling_restart_fails_no_request(three: Cluster) -> None:
    bootstrap = ",".join(each.bootstrap for each in three.brokers.values())
    created(three, bootstrap, "t")
    trying = Trying(bootstrap, "t")
    with (
        Producing(bootstrap, "t", PARTITIONS) as producing,
        Producing(bootstrap, "t", PARTITIONS, **{"enable.idempotence": False, "acks": 1}) as leader_only,
        Consuming(bootstrap, "t") as consuming,
    ):
        try:
            gaps = restart_all(three, ("t",), {"acks=all": producing, "acks=1": leader_only})
        finally:
            trying.end()
            producing.end()
            leader_only.end()
        wanted = set(producing.acknowledged)
        wait_until(lambda: wanted <= consuming.places.keys(), "all that was acknowledged is read")
    print(f"longest gaps in s, by restart: {gaps}")  # noqa: T201 - with pytest -s
    print(f"a client that tries nothing again: {dict(trying.told)}")  # noqa: T201 - with pytest -s
    assert not producing.errors
    assert not leader_only.errors
    assert not consuming.errors
    assert not trying.unexpected
    assert trying.told["acknowledged"] > 100
    assert all(max(each) < GAP_S for each in gaps.values())


def test_nothing_is_stored_twice(three: Cluster) -> None:
    """Idempotent alone: what is tried again because of a restart is stored once."""
    bootstrap = ",".join(each.bootstrap for each in three.brokers.values())
    created(three, bootstrap, "t")
    with Producing(bootstrap, "t", PARTITIONS) as producing, Consuming(bootstrap, "t") as consuming:
        restart_all(three, ("t",), {"acks=all": producing})
        producing.end()
        wanted = set(producing.acknowledged)
        wait_until(lambda: wanted <= consuming.places.keys(), "all that was acknowledged is read")
    assert not producing.errors
    assert not consuming.errors
    assert all(len(places) == 1 for places in consuming.places.values()), "stored twice"


def test_exactly_once_without_a_failed_transaction(three: Cluster, tmp_path: Path) -> None:
    """Read, process, write: coordinators of transactions and groups move, and the client notices nothing that
    it does not repeat by itself. It ends with the first error it is shown, and no transaction is aborted.
    """
    bootstrap = ",".join(each.bootstrap for each in three.brokers.values())
    created(three, bootstrap, "in", "out", partitions=1)
    committed = tmp_path / "committed"
    with ExitStack() as stack:
        producing = stack.enter_context(Producing(bootstrap, "in", 1, every_s=0.1))
        copier = stack.enter_context(copying(bootstrap, committed))
        wait_until(lambda: lines(committed) > 10, "transactions are committed")
        for number in three.brokers:
            assert three.brokers[number].stop() == 0
            at = lines(committed)
            wait_until(lambda at=at: lines(committed) > at + 10, "transactions go on without it")
            three.brokers[number].start()
            for topic in ("in", "out", "__transaction_state", "__consumer_offsets"):
                wait_until(lambda topic=topic: in_sync(three, topic), "all in sync again", bound_s=180)
        producing.end()
        wanted = list(producing.acknowledged)
        wait_until(lambda: lines(committed) >= len(wanted), "everything is copied", bound_s=180)
        assert copier.poll() is None
    assert not producing.errors
    for level in LEVELS:  # alike: no transaction was aborted
        found = read_until(bootstrap, "out", level, lambda values: len(values) >= len(wanted))
        assert found == [each.decode() for each in wanted]


@contextmanager
def copying(bootstrap: str, committed: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.support.copier", bootstrap, "1000000", "120"]
    with committed.open("wb") as out, subprocess.Popen(command, stdout=out) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


@contextmanager
def java(output: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """One of Kafka's tools, until it ends or is ended."""
    kafka_script()
    command = ["java", "-Xmx256m", "-cp", f"{kafka_libraries()}/*", *arguments]
    with output.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_rolling_restart_under_java_clients(three: Cluster, tmp_path: Path) -> None:
    """Kafka's own producer and console consumer, in a group, with their defaults."""
    bootstrap = ",".join(each.bootstrap for each in three.brokers.values())
    created(three, bootstrap, "j")
    written, read = tmp_path / "written", tmp_path / "read"
    produce = (
        *("org.apache.kafka.tools.ProducerPerformance", "--topic", "j", "--num-records", "1000000"),
        *("--throughput", "200", "--record-size", "100", "--reporting-interval", "1000"),
        *("--bootstrap-server", bootstrap),
    )
    consume = (
        *("org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", "j", "--group", "java"),
        *("--from-beginning", "--bootstrap-server", bootstrap),
    )
    with ExitStack() as stack:
        producer = stack.enter_context(java(written, *produce))
        consumer = stack.enter_context(java(read, *consume))
        producing = stack.enter_context(Producing(bootstrap, "j", PARTITIONS))
        wait_until(lambda: sent(written) > 200, "Java's producer writes", bound_s=180)
        wait_until(lambda: read.stat().st_size > 0, "Java's consumer reads", bound_s=180)
        begun = len(written.read_text())  # a JVM's first seconds say nothing
        gaps = restart_all(three, ("j",), {"acks=all": producing})
        at = sent(written)
        wait_until(lambda: sent(written) > at + 400, "Java's producer goes on")
        producing.end()
        last = producing.acknowledged[-1]
        wait_until(lambda: last + b"\n" in read.read_bytes(), "Java's consumer reads on")
        assert producer.poll() is None
        assert consumer.poll() is None
    windows = re.findall(r"([\d.]+) ms max latency", written.read_text()[begun:])
    slowest = max(map(float, windows))
    print(f"Java's slowest record by second: {windows}")  # noqa: T201 - with pytest -s
    print(f"longest gaps in s: {gaps}; Java's slowest record: {slowest / 1000:.2f} s")  # noqa: T201 - with -s
    assert "Exception" not in written.read_text(), "Java's producer had to give up records"
    assert "Exception" not in read.read_text(errors="replace")
    assert slowest < 3000 * GAP_S
    assert not producing.errors


def sent(output: Path) -> int:
    """Records that ProducerPerformance says are acknowledged."""
    return sum(int(each) for each in re.findall(r"^(\d+) records sent", output.read_text(), re.MULTILINE))
