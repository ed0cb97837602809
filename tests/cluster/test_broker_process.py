"""`isthmus broker` as a person or a supervisor meets it: ready line, clean stop, restart, ways to fail."""

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.client import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.records import Record, build_batch, decode_batches
from protocol.types import TopicPartition
from tests.support.broker import TEST_SETTINGS, BrokerProcess

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]
READY = re.compile(r"isthmus broker (\d+) ready: PLAINTEXT://127\.0\.0\.1:(\d+) cluster (\S+) data (\S+)(.*)")


class StandAlone:
    """A broker with its own ZooKeeper."""

    def __init__(self, data: Path, *arguments: str) -> None:
        settings = [part for name, text in TEST_SETTINGS.items() for part in ("--set", f"{name}={text}")]
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "isthmus", "broker", "--embedded-zookeeper"),
                *("--data", str(data), *settings, *arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        found = READY.fullmatch(self.line.rstrip("\n"))
        if found is None:
            _, errors = self.process.communicate()
            raise AssertionError(f"not ready: {self.line!r} {errors}")
        self.ready = found
        self.bootstrap = f"127.0.0.1:{found[2]}"

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Exit code, and what was written beside the ready line."""
        self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=30)
        return self.process.returncode, output + errors


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[StandAlone]]:
    brokers: list[StandAlone] = []
    yield brokers
    for broker in brokers:
        broker.process.kill()
        broker.process.communicate()


def children_of(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(number) for number in listed.stdout.split()]


def wait_gone(pids: list[int], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, f"still there: {pids}"
        time.sleep(0.05)


def fails(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit code and standard error of a broker that must not come up; one line, no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "isthmus", "broker", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


async def test_ready_line_data_and_clean_stop(tmp_path: Path, started: list[StandAlone]) -> None:
    data = tmp_path / "data"
    broker = StandAlone(data, "--listener", "PLAINTEXT://127.0.0.1:0")
    started.append(broker)
    assert (broker.ready[1], broker.ready[4]) == ("1", str(data / "log"))
    async with ClusterClient(broker.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
        await client.produce(TopicPartition("t", 0), build_batch([Record(0, 1, None, b"kept", [])]))
    zookeeper = children_of(broker.process.pid)
    assert len(zookeeper) == 1
    assert broker.stop() == (0, "")
    wait_gone(zookeeper)
    assert (data / "log" / ".kafka_cleanshutdown").exists()

    again = StandAlone(data, "--listener", f"PLAINTEXT://{broker.bootstrap}")
    started.append(again)
    assert again.ready[3] == broker.ready[3]  # the same cluster
    async with ClusterClient(again.bootstrap) as client:
        fetched = await client.fetch(TopicPartition("t", 0), 0)
        assert [record.value for record in decode_batches(fetched.records)] == [b"kept"]
    assert again.stop(signal.SIGINT) == (0, "")


def test_after_a_kill_it_comes_back_without_waiting_for_its_ghost(
    tmp_path: Path, started: list[StandAlone]
) -> None:
    session = ("--set", "zookeeper.session.timeout.ms=60000")
    broker = StandAlone(tmp_path / "data", "--listener", "PLAINTEXT://127.0.0.1:0", *session)
    started.append(broker)
    zookeeper = children_of(broker.process.pid)
    broker.process.kill()
    broker.process.communicate()
    wait_gone(zookeeper)  # the embedded ZooKeeper dies with its broker
    begun = time.monotonic()
    again = StandAlone(tmp_path / "data", "--listener", f"PLAINTEXT://{broker.bootstrap}", *session)
    started.append(again)
    assert time.monotonic() - begun < 50  # the ghost's session would last 60 s
    assert again.stop()[0] == 0


def test_a_shells_limit_of_descriptors_is_not_the_brokers(tmp_path: Path, started: list[StandAlone]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        broker = StandAlone(tmp_path, "--listener", "PLAINTEXT://127.0.0.1:0")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    started.append(broker)
    assert resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)[0] == min(hard, 1 << 20)


def test_metrics_are_served(tmp_path: Path, started: list[StandAlone]) -> None:
    broker = StandAlone(tmp_path, "--listener", "PLAINTEXT://127.0.0.1:0", "--metrics-port", "0")
    started.append(broker)
    url = broker.ready[5].rpartition("metrics ")[2]
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    for line in (
        "kafka_controller_kafkacontroller_activecontrollercount 1.0",
        "kafka_controller_kafkacontroller_activebrokercount 1.0",
        "kafka_controller_kafkacontroller_offlinepartitionscount 0.0",
        "kafka_controller_controllerstats_uncleanleaderelections_total 0.0",
        "kafka_server_zookeeperclientmetrics_connected 1.0",
        "isthmus_broker_may_lead 1.0",
    ):
        assert line in text
    assert 'kafka_network_requestmetrics_requests_total{request="UpdateMetadata"} ' in text
    assert "process_resident_memory_bytes" in text
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(url.replace("/metrics", "/other"), timeout=10)


def test_a_broker_without_a_number_draws_one_and_keeps_it(zookeeper: str, tmp_path: Path) -> None:
    numbers = []
    for _ in range(2):
        broker = BrokerProcess(tmp_path, zookeeper, -1)
        try:
            broker.start()
            numbers.append(re.search(r"isthmus broker (\d+) ready", broker.output)[1])
            assert broker.stop() == 0
        finally:
            broker.kill()
    assert numbers == ["1001", "1001"]


def test_server_properties_and_what_overrides_them(zookeeper: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=5\nnum.io.threads=8\nlog.segment.bytes=oops\nnum.partition=3\n")
    code, errors = fails("--config", str(file), "--zookeeper", zookeeper)
    assert code == 2
    assert errors.splitlines() == [
        f"isthmus: {file}:3: log.segment.bytes: must be a whole number, not 'oops'",
        f"isthmus: {file}:4: num.partition: unknown setting; did you mean num.partitions?",
    ]
    code, errors = fails("--config", str(file), "--set", "log.segment.bytes")
    assert (code, errors) == (2, "isthmus: --set log.segment.bytes: write NAME=VALUE\n")


def test_unknown_setting() -> None:
    code, errors = fails("--set", "auto.create.topic.enable=false")
    assert code == 2
    assert errors == (
        "isthmus: --set: auto.create.topic.enable: unknown setting; did you mean auto.create.topics.enable?\n"
    )


def test_taken_port(zookeeper: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = ("--zookeeper", zookeeper, "--id", "1", "--data", str(tmp_path))
        code, errors = fails(*arguments, "--listener", f"PLAINTEXT://127.0.0.1:{port}")
        assert code == 1
        assert errors == (f"isthmus: cannot listen on PLAINTEXT://127.0.0.1:{port}: Address already in use\n")
        code, errors = fails(*arguments, "--listener", "PLAINTEXT://127.0.0.1:0", "--metrics-port", str(port))
        assert code == 1
        assert errors == f"isthmus: cannot serve metrics on 127.0.0.1:{port}: Address already in use\n"
        code, errors = fails(*arguments, "--metrics-port", str(65536 + port))
        assert code == 2  # never another port than the one that was asked for
        code, errors = fails(*arguments, "--listener", "PLAINTEXT://no-such-host.invalid:9092")
        assert code == 1
        assert errors.startswith("isthmus: cannot listen on PLAINTEXT://no-such-host.invalid:9092: ")
        assert "Unknown error" not in errors


def test_data_directory_that_cannot_be_used(zookeeper: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    arguments = ("--zookeeper", zookeeper, "--id", "1", "--listener", "PLAINTEXT://127.0.0.1:0")
    code, errors = fails(*arguments, "--data", str(tmp_path / "file"))
    assert code == 1
    assert errors.count("\n") == 1
    assert f"{tmp_path}/file/log" in errors
    assert "Not a directory" in errors
    code, errors = fails("--embedded-zookeeper", "--data", str(tmp_path / "file"))
    assert code == 1
    assert errors.count("\n") == 1
    assert "cannot be used: Not a directory" in errors


def test_data_directory_of_another_process(broker: BrokerProcess, tmp_path: Path) -> None:
    data = str(broker.directory / "data")
    code, errors = fails(
        *("--zookeeper", broker.zookeeper, "--id", "1", "--data", data),
        *("--listener", "PLAINTEXT://127.0.0.1:0"),
    )
    assert code == 1
    assert errors.count("\n") == 1
    assert "is in use by another process" in errors
    assert broker.running


def test_data_directory_of_another_cluster(broker: BrokerProcess, zookeeper: str, tmp_path: Path) -> None:
    directory = tmp_path / "data" / "log"
    directory.mkdir(parents=True)
    shutil.copy(broker.directory / "data" / "log" / "meta.properties", directory)
    code, errors = fails(
        *("--zookeeper", zookeeper, "--id", "1", "--data", str(tmp_path / "data")),
        *("--listener", "PLAINTEXT://127.0.0.1:0"),
    )
    assert code == 1
    assert errors.count("\n") == 1
    assert f"belongs to cluster {broker.cluster_id}" in errors


def test_a_second_broker_with_the_same_number_is_refused(broker: BrokerProcess, tmp_path: Path) -> None:
    # Case C14 (d): the living one loses nothing, the other one says where it is.
    code, errors = fails(
        *("--zookeeper", broker.zookeeper, "--id", "1", "--data", str(tmp_path)),
        *("--listener", "PLAINTEXT://127.0.0.1:0", "--log-level", "error"),
        *("--set", "zookeeper.session.timeout.ms=1000"),
    )
    assert code == 1
    assert errors == (
        f"isthmus: broker id 1 belongs to a living broker at 127.0.0.1:{broker.port}: "
        "give this one another broker.id, or stop that one\n"
    )
    assert broker.running


def test_no_zookeeper() -> None:
    code, errors = fails("--id", "1")
    assert code == 2
    assert "give --zookeeper HOST:PORT, or --embedded-zookeeper" in errors
    code, errors = fails(
        *("--id", "1", "--zookeeper", "127.0.0.1:1"),
        *("--set", "zookeeper.connection.timeout.ms=300"),
    )
    assert code == 1
    assert errors == (
        "isthmus: no ZooKeeper reachable at 127.0.0.1:1 within 300 ms (zookeeper.connection.timeout.ms)\n"
    )


def test_no_java(tmp_path: Path) -> None:
    code, errors = fails(
        *("--embedded-zookeeper", "--data", str(tmp_path)),
        environment={"PATH": str(tmp_path), "JAVA_HOME": ""},
    )
    assert code == 1
    assert errors.count("\n") == 1
    assert "install a Java 17+ runtime" in errors
