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
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from bench.brokers.sides import OURS, PARTITIONS, THEIRS, Side, free_port, server, zookeeper

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
    with contextlib.ExitStack() as running:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        controller = free_port()
        voters = f"controller.quorum.voters={_CONTROLLER}@127.0.0.1:{controller}"
        address = f"CONTROLLER://127.0.0.1:{controller}"
        common = ("controller.listener.names=CONTROLLER", voters, *_SETTINGS)
        own: tuple[str, ...] = (
            *("process.roles=controller", f"node.id={_CONTROLLER}", f"listeners={address}"),
            *(f"advertised.listeners={address}", *common),
        )
        running.enter_context(_kafka(script, directory, "controller", controller, cluster, own))
        ports, pids = [], []
        for number in BROKERS:
            ports.append(free_port())
            own = (
                *("process.roles=broker", f"node.id={number}", *common),
                f"listeners=PLAINTEXT://127.0.0.1:{ports[-1]}",
            )
            pids.append(
                running.enter_context(_kafka(script, directory, f"{number}", ports[-1], cluster, own))
            )
        yield Replicated(THEIRS, ports, pids)


@contextlib.contextmanager
def _kafka(
    script: Path, directory: Path, name: str, port: int, cluster: str, settings: Sequence[str]
) -> Iterator[int]:
    """Pid of one Kafka process, whose directory belongs to the cluster before it starts."""
    name = f"bench-replicated-{os.getpid()}-{name}"
    home = Path(os.environ.get("INTEROP_HOME", Path.home() / ".cache" / "isthmus-interop"))
    properties = directory / f"{name}.properties"
    properties.write_text("\n".join([*settings, f"log.dirs={home / 'run' / name / 'data'}"]) + "\n")
    run = [str(script), "tool", "kafka.tools.StorageTool", "format", "-c", str(properties), "-t", cluster]
    heap = {"INTEROP_BROKER_HEAP": "-Xms128m -Xmx256m"} if name.endswith("controller") else {}
    try:
        subprocess.run(run, check=True, capture_output=True, text=True)
        started = subprocess.run(
            [str(script), "start", name, str(port), *settings],
            env={**os.environ, "INTEROP_CONTROLLER_PORT": str(port), **heap},
            check=True,
            capture_output=True,
            text=True,
        )
        yield int(started.stdout.split()[-1])
    finally:
        subprocess.run([str(script), "wipe", name], check=False, capture_output=True)
