"""The two brokers that are compared: how they start, and what their processes use.

Owns processes and topics, knows nothing of loads. Both brokers run with default settings and one replica.
Ours has a ZooKeeper beside it that already runs, Kafka's its controller inside; CPU and memory are those of
the broker's process alone.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from topology.runtime import free_port, free_ports

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 6
ENDED_WITHIN_S = 30.0
OURS = "isthmus"
THEIRS = "kafka"
# One broker cannot keep the three replicas that these topics have by default; `kafka.sh` says the same.
ALONE = (
    "offsets.topic.replication.factor=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
    "group.initial.rebalance.delay.ms=0",
)


def interop_script() -> Path:
    """What starts Apache Kafka and runs its tools (`make interop` says how to get it)."""
    return Path(os.environ.get("ISTHMUS_INTEROP", ROOT.parent / "shared" / "interop")) / "kafka.sh"


class Side:
    """A running broker: where it is, and its process. `start_s`: from the command to being ready."""

    replicas = 1
    """Of each partition of its topics."""

    def __init__(self, name: str, port: int, pid: int, start_s: float) -> None:
        self.name = name
        self.port = port
        self.pid = pid
        self.start_s = start_s
        self.bootstrap = f"127.0.0.1:{port}"
        self.process = psutil.Process(pid)
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._topics = 0

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident_mb(self) -> float:
        return float(self.process.memory_info().rss / 1e6)

    def topic(self, partitions: int = PARTITIONS, config: dict[str, str] | None = None) -> str:
        """A fresh topic."""
        self._topics += 1
        name = f"bench-{self._topics}"
        topic = NewTopic(name, partitions, self.replicas, config=config or {})
        for future in self._admin.create_topics([topic], operation_timeout=120).values():
            future.result(150)
        return name

    def drop(self, topic: str) -> None:
        for future in self._admin.delete_topics([topic]).values():
            future.result(60)


def compile_modules() -> None:
    """What an installation has done: starts are compared with those of compiled Java."""
    for package in ("isthmus", "broker", "protocol"):
        compileall.compile_dir(ROOT / package, quiet=1)


@contextlib.contextmanager
def zookeeper(directory: Path) -> Iterator[str]:
    """A ZooKeeper server of our own kind; gives its address."""
    compile_modules()
    command = (sys.executable, "-m", "isthmus", "zookeeper", "--port", "0", "--data", str(directory))
    with server(command) as (_, line):
        yield line.split("ready: ")[1].split(",")[0].strip()


@contextlib.contextmanager
def isthmus(directory: Path) -> Iterator[Side]:
    """Our broker with a ZooKeeper beside it, which is not part of what is measured."""
    with zookeeper(directory / "zookeeper") as address, broker(directory / "data", address) as side:
        yield side


@contextlib.contextmanager
def broker(directory: Path, address: str) -> Iterator[Side]:
    """Our broker, registered in a ZooKeeper that runs."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "isthmus", "broker", "--id", "1", "--zookeeper", address),
        *("--listener", f"PLAINTEXT://127.0.0.1:{port}", "--data", str(directory)),
        *(part for setting in ALONE for part in ("--set", setting)),
    ]
    began = time.monotonic()
    with server(command) as (process, _):
        yield Side(OURS, port, process.pid, time.monotonic() - began)


@contextlib.contextmanager
def server(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that says on its first line that it is ready; ended afterwards."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if "ready" not in line:
                raise SystemExit(f"{' '.join(command)} did not start: {line}")
            yield process, line
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(ENDED_WITHIN_S)
            except subprocess.TimeoutExpired:
                print(f"{' '.join(command[:5])} does not end: killed", file=sys.stderr, flush=True)
                process.kill()


@contextlib.contextmanager
def apache_kafka(script: Path) -> Iterator[Side]:
    port, controller = free_ports(2)
    name = f"bench-{os.getpid()}"
    environment = {**os.environ, "INTEROP_CONTROLLER_PORT": str(controller)}
    command = [str(script), "start", name, str(port)]
    try:
        # The first start formats the directory as well; what a user waits for is the second one.
        for attempt in range(2):
            began = time.monotonic()
            started = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            if not attempt:
                subprocess.run([str(script), "stop", name], check=True, capture_output=True)
        yield Side(THEIRS, port, int(started.stdout.split()[-1]), time.monotonic() - began)
    finally:
        subprocess.run([str(script), "wipe", name], check=False, capture_output=True)
