"""Two clusters of three brokers that are compared: ours, and Apache Kafka's with a controller of its own.

Owns processes and topics, like `sides`. Every topic has three replicas, two of which have to be in sync.
Measured are the brokers alone: ours have a ZooKeeper beside them, Kafka's a controller, and neither counts.
"""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from bench.brokers.limits import RowFailed
from bench.brokers.sides import OURS, PARTITIONS, THEIRS, Side, server, zookeeper
from topology.runtime import free_port, free_ports

BROKERS = (1, 2, 3)
_CONTROLLER = 100
# Files of dropped topics go at once: three replicas of every run would fill the page cache.
_SETTINGS = ("log.segment.delete.delay.ms=1000", "default.replication.factor=3", "min.insync.replicas=2")


class Replicated(Side):
    """Three running brokers; `cpu_s` and `resident_mb` are sums over all of them."""

    replicas = len(BROKERS)

    def __init__(self, name: str, ports: Sequence[int], pids: Sequence[int]) -> None:
        super().__init__(name, ports[0], pids[0], 0.0)
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        self._processes = [psutil.Process(pid) for pid in pids]

    def cpu_s(self) -> float:
        times = [each.cpu_times() for each in self._processes]
        return float(sum(each.user + each.system for each in times))

    def resident_mb(self) -> float:
        return float(sum(each.memory_info().rss for each in self._processes) / 1e6)

    def topic(self, partitions: int = PARTITIONS, config: dict[str, str] | None = None) -> str:
        return super().topic(partitions, {"min.insync.replicas": "2"} | (config or {}))


@contextlib.contextmanager
def isthmus_brokers(directory: Path) -> Iterator[Side]:
    with contextlib.ExitStack() as running:
        address = running.enter_context(zookeeper(directory / "zookeeper"))
        ports, pids = [], []
        for number in BROKERS:
            ports.append(free_port())
            command = [
                *(sys.executable, "-m", "isthmus", "broker", "--id", str(number), "--zookeeper", address),
                *("--listener", f"PLAINTEXT://127.0.0.1:{ports[-1]}"),
                *("--data", str(directory / f"data-{number}")),
                *(part for setting in _SETTINGS for part in ("--set", setting)),
            ]
            pids.append(running.enter_context(server(command))[0].pid)
        yield Replicated(OURS, ports, pids)


@contextlib.contextmanager
def kafka_brokers(script: Path, directory: Path) -> Iterator[Side]:
    """`kafka.sh` starts single brokers; settings that come later in its file make them one cluster."""
    cluster = _uuid()
    controller_port, *ports = free_ports(1 + len(BROKERS))
    address = f"127.0.0.1:{controller_port}"
    common = (
        "controller.listener.names=CONTROLLER",
        f"controller.quorum.voters={_CONTROLLER}@{address}",
        *_SETTINGS,
    )
    nodes = [_Node(script, cluster, number, port) for number, port in zip(BROKERS, ports, strict=True)]
    controller = _Node(script, cluster, _CONTROLLER, controller_port)
    with contextlib.ExitStack() as running:
        for node in (controller, *nodes):
            running.callback(node.wipe)
        controller.format(directory, *common)
        controller.start(*common)
        with ThreadPoolExecutor(len(nodes)) as threads:  # Java takes its time
            pids = list(threads.map(lambda node: node.start(*common), nodes))
        yield Replicated(THEIRS, ports, pids)


class _Node:
    """One Kafka process, whose directory belongs to the cluster before it starts."""

    def __init__(self, script: Path, cluster: str, number: int, port: int) -> None:
        self._script = script
        self._cluster = cluster
        self._number = number
        self._port = port
        self._name = f"bench-replicated-{os.getpid()}-{number}"
        home = Path(os.environ.get("INTEROP_HOME", Path.home() / ".cache" / "isthmus-interop"))
        self._data = home / "run" / self._name / "data"

    def _own(self) -> tuple[str, ...]:
        if self._number != _CONTROLLER:
            return (
                *("process.roles=broker", f"node.id={self._number}"),
                f"listeners=PLAINTEXT://127.0.0.1:{self._port}",
            )
        address = f"CONTROLLER://127.0.0.1:{self._port}"
        return (
            *("process.roles=controller", f"node.id={self._number}", f"listeners={address}"),
            f"advertised.listeners={address}",
        )

    def format(self, directory: Path, *settings: str) -> None:
        """The controller's directory; a broker's needs one file, for which `start` needs no Java."""
        properties = directory / f"{self._name}.properties"
        properties.write_text("\n".join([*self._own(), *settings, f"log.dirs={self._data}"]) + "\n")
        tool = ("kafka.tools.StorageTool", "format", "-c", str(properties), "-t", self._cluster)
        _output([str(self._script), "tool", *tool], dict(os.environ))

    def start(self, *settings: str) -> int:
        """Its pid."""
        if self._number != _CONTROLLER:
            self._data.mkdir(parents=True)
            named = {"version": 1, "cluster.id": self._cluster, "node.id": self._number}
            lines = [f"{name}={text}" for name, text in (named | {"directory.id": _uuid()}).items()]
            (self._data / "meta.properties").write_text("\n".join(lines) + "\n")
        heap = {"INTEROP_BROKER_HEAP": "-Xms128m -Xmx256m"} if self._number == _CONTROLLER else {}
        started = _output(
            [str(self._script), "start", self._name, str(self._port), *self._own(), *settings],
            {"INTEROP_WAIT_S": "240", **os.environ, "INTEROP_CONTROLLER_PORT": str(self._port), **heap},
        )
        return int(started.split()[-1])

    def wipe(self) -> None:
        subprocess.run([str(self._script), "wipe", self._name], check=False, capture_output=True)


def _output(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """What it prints. Raises RowFailed with its last words."""
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RowFailed(f"Apache Kafka did not start: {(done.stderr or done.stdout)[-1000:]}")
    return done.stdout


def _uuid() -> str:
    """As Kafka writes one; none that begins like an option."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return _uuid() if text.startswith("-") else text
