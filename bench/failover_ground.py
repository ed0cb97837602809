"""The ground of `bench/failover.py`: three brokers with racks, three ZooKeeper servers, and the producer.

Owns processes and our own look at what brokers say. Must not know what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

from bench.brokers.sides import ROOT
from broker.control import paths
from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from broker.control.nodes import decode_controller
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_ensemble import Ensemble
from protocol.client import ClusterClient
from protocol.client.topic_calls import NewTopic
from topology.runtime import free_port, free_ports

NUMBERS = (1, 2, 3)
TOPICS = 10
BOUND_S = 180.0
Figures = dict[str, Any]


class Node:
    """One broker's process."""

    def __init__(self, number: int, directory: Path, zookeeper: str, session_ms: int, logs: Path) -> None:
        self.number = number
        self.port = free_port()
        self._log = logs / f"broker-{number}.log"
        settings = {
            "zookeeper.session.timeout.ms": session_ms,
            "offsets.topic.num.partitions": 3,
            "auto.leader.rebalance.enable": "false",
        }
        self._command = [
            *(sys.executable, "-m", "isthmus", "broker", "--id", str(number), "--zookeeper", zookeeper),
            *(
                "--listener",
                f"PLAINTEXT://127.0.0.1:{self.port}",
                "--data",
                str(directory / f"data-{number}"),
            ),
            *("--rack", f"site-{number}", "--log-level", "info"),
            *(part for name, value in settings.items() for part in ("--set", f"{name}={value}")),
        ]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        """Seconds of a processor that it has used."""
        assert self.process is not None
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def start(self) -> None:
        with self._log.open("ab") as log:
            at = log.tell()
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=ROOT)
        deadline = time.monotonic() + BOUND_S
        while b" ready: " not in self._log.read_bytes()[at:]:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"broker {self.number} did not start:\n{self._log.read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(BOUND_S)

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


class Load:
    """The producer's process. With `logs` its client says there what it does."""

    def __init__(self, bootstrap: str, partitions: list[str], logs: Path | None = None) -> None:
        script = str(Path(__file__).with_name("failover_load.py"))
        command = [sys.executable, script, bootstrap, ",".join(partitions)]
        with contextlib.ExitStack() as stack:
            log = None if logs is None else stack.enter_context((logs / "producer.log").open("ab"))
            self._process = subprocess.Popen(
                [*command, *(["--debug", "broker,metadata,topic,msg"] if log else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def begin(self) -> None:
        """A new window, once all that was sent before is acknowledged."""
        self._ask("begin")

    def report(self) -> Figures:
        return json.loads(self._ask("report"))  # type: ignore[no-any-return]

    def _ask(self, command: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Ground:
    """Brokers, ZooKeeper servers, and our own look at both."""

    def __init__(self, directory: Path, session_ms: int, logs: Path) -> None:
        free = iter(free_ports(3 * len(NUMBERS)))
        ports = [(next(free), next(free)) for _ in NUMBERS]
        servers = [
            f"{number}=127.0.0.1:{one}:{other}" for number, (one, other) in zip(NUMBERS, ports, strict=True)
        ]
        self.servers = {
            number: EmbeddedZooKeeper(
                directory / f"zookeeper-{number}", port=next(free), ensemble=Ensemble.parse(number, servers)
            )
            for number in NUMBERS
        }
        self.connect = ",".join(server.connect for server in self.servers.values())
        self.nodes = {number: Node(number, directory, self.connect, session_ms, logs) for number in NUMBERS}
        self.zookeeper: ZooKeeper

    async def start(self) -> None:
        for server in self.servers.values():
            server.start()
        await self._until(
            lambda: all(server.serving() for server in self.servers.values()), "ZooKeeper serves"
        )
        for node in self.nodes.values():
            node.start()
        self.zookeeper = await ZooKeeper.connect(self.connect, session_timeout_ms=30_000, wait_ms=30_000)

    async def close(self) -> None:
        for node in self.nodes.values():
            node.end()
        if hasattr(self, "zookeeper"):
            await self.zookeeper.close()
        for server in self.servers.values():
            server.stop()

    async def _until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + BOUND_S
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(f"not within {BOUND_S:g} s: {what}")
            await asyncio.sleep(0.05)

    async def controller(self) -> int:
        node = await self.zookeeper.get(paths.CONTROLLER)
        return -1 if node is None else decode_controller(node.data)

    async def create(self, count: int) -> tuple[list[str], float]:
        """Topics of a run, their preferred leaders in turn; and the seconds that took."""
        names = [f"t{count}-{number}" for number in range(TOPICS)]
        began = time.monotonic()
        async with ClusterClient(self.nodes[1].address) as client:
            for turn, name in enumerate(names):
                each = max(1, count // TOPICS)
                orders = [NUMBERS[at:] + NUMBERS[:at] for at in range(3)]
                assignment = {index: list(orders[(turn + index) % 3]) for index in range(each)}
                await client.create_topics(
                    [NewTopic(name, each, 3, {"min.insync.replicas": "2"}, assignment=assignment)]
                )
        await self.settled(names)
        return names, time.monotonic() - began

    async def settled(self, names: list[str]) -> None:
        """All replicas in sync and preferred leaders leading, as every broker says."""
        deadline = time.monotonic() + BOUND_S
        while True:
            views = [await view(node.address, names) for node in self.nodes.values()]
            if all(len(isr) == 3 for seen in views for _, isr, _ in seen.values()):
                if all(leader == replicas[0] for seen in views for leader, _, replicas in seen.values()):
                    return
                await elect_preferred(self.nodes[1].address)
            if time.monotonic() > deadline:
                raise SystemExit(f"replicas were not in sync and led within {BOUND_S:g} s")
            await asyncio.sleep(0.3)


View = dict[tuple[str, int], tuple[int, tuple[int, ...], tuple[int, ...]]]


async def view(address: str, names: list[str]) -> View:
    """Leader, ISR and replicas by partition, as this very broker has them; empty when it is not there."""
    try:
        async with ClusterClient(address) as client:
            return await view_of(client, address, names)
    except (OSError, TimeoutError, ConnectionError):
        return {}


async def view_of(client: ClusterClient, address: str, names: list[str]) -> View:
    topics = (await client.metadata(names)).topics
    return {
        (name, index): (item.leader, tuple(item.isr), tuple(item.replicas))
        for name, topic in topics.items()
        for index, item in topic.partitions.items()
    }


async def elect_preferred(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    with contextlib.suppress(Exception):
        await asyncio.to_thread(admin.elect_leaders(ElectionType.PREFERRED).result, 60)


@contextlib.asynccontextmanager
async def running(session_ms: int, logs: Path | None) -> AsyncIterator[Ground]:
    with tempfile.TemporaryDirectory(prefix="bench-failover-") as directory:
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)
        ground = Ground(Path(directory), session_ms, logs or Path(directory))
        try:
            await ground.start()
            yield ground
        finally:
            await ground.close()
