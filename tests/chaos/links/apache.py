"""One broker of Apache Kafka 4.3 (KRaft, its own controller) as a side of a link run, behind the relay.

Owns its settings, its process and whether it is ready; it can be killed, paused and stopped like one of
ours. It is a child of the run and ends with it. Must not know faults or links.
"""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from tests.chaos.world import RelayedBroker
from tests.support.apache_kafka import kafka_libraries, kafka_script
from tests.support.waiting import wait_until
from topology.runtime import free_ports

_PR_SET_PDEATHSIG = 1
_HEAP = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC")
_STARTED = "Kafka Server started"
SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class ApacheBroker(RelayedBroker):
    """`advertised` is the relay's port. Skips aloud (pytest) where Java or the jars are not there."""

    def __init__(self, directory: Path, advertised: int, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, "", 1)
        self.port, self._controller = free_ports(2)
        self._logging = kafka_script().parent / "log4j2.properties"
        self._advertised = advertised
        self._settings = dict(settings or {})
        self._file = directory / "server.properties"

    def command(self) -> list[str]:
        return self._java(*_HEAP, "-Dinterop.level=INFO", of=("kafka.Kafka", str(self._file)))

    def _java(self, *options: str, of: tuple[str, ...]) -> list[str]:
        logging = f"-Dlog4j2.configurationFile=file:{self._logging}"
        libraries = str(kafka_libraries() / "*")
        return ["java", *options, "-Djava.awt.headless=true", logging, "-cp", libraries, *of]

    def launch(self) -> None:
        """As `RelayedBroker.launch`; before the first one the log directory is formatted."""
        if not self._file.exists():
            self._format()
        path = self.directory / "output"
        if path.exists():
            path.rename(self.directory / f"output.{path.stat().st_mtime_ns}")
        with path.open("wb") as output:
            self._process = subprocess.Popen(
                self.command(), stdout=output, stderr=subprocess.STDOUT, preexec_fn=_end_with_parent
            )

    def _format(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        controller = f"127.0.0.1:{self._controller}"
        texts = {
            **SETTINGS,
            **self._settings,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._advertised}",
            "log.dirs": str(self.directory / "data"),
        }
        self._file.write_text("".join(f"{name}={text}\n" for name, text in texts.items()))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        words = ("kafka.tools.StorageTool", "format", "-c", str(self._file), "-t", cluster)
        done = subprocess.run(
            self._java("-Xmx256m", of=words), capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{self.directory} could not be formatted:\n{done.stdout}{done.stderr}"

    @property
    def ready(self) -> bool:
        """It says so, and takes connections."""
        if not self.running or _STARTED not in self.output:
            return False
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def wait_ready(self, timeout_s: float = 300.0) -> None:
        wait_until(lambda: self.ready, f"Apache Kafka in {self.directory} is ready", bound_s=timeout_s)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
