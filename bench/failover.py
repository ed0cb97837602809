"""How long producers wait when a broker, the controller or a site is lost, and at a planned restart.

    python -m bench.failover [--partitions 10 --partitions 1000] [--repeat 3] [--json FILE]
    python -m bench.failover --partitions 4000 --repeat 2 --only leader --only restart

Three brokers with racks, three ZooKeeper servers of one ensemble, three replicas, min.insync.replicas 2. A
producer (`failover_load.py`) writes to up to 30 partitions. `detection_ms` is from the kill until ZooKeeper
ends the dead broker's session (`zookeeper.session.timeout.ms`, a setting); `election_ms` is from then until
every surviving broker's metadata names a living leader for each partition; `gap_ms` is the longest time that
the producer had no acknowledgement in any one partition. Rows above their limit are marked; the exit code is
0 all the same: a busy machine is no reason to fail.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

from bench.brokers.sides import ROOT, compile_modules, free_port
from broker.control import paths
from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from broker.control.nodes import decode_controller
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_ensemble import Ensemble
from protocol.client import ClusterClient
from protocol.client.topic_calls import NewTopic

NUMBERS = (1, 2, 3)
SCENES = ("leader", "controller", "site", "restart")
TOPICS = 10
WRITTEN = 30
BOUND_S = 180.0
LIMITS = {"election_ms": {1000: 1000.0, 4000: 3000.0}, "restart_gap_ms": 500.0}
"""Of issue 5: new leaders after detection, by number of partitions; what a planned restart may cost."""
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
    """The producer's process."""

    def __init__(self, bootstrap: str, partitions: list[str]) -> None:
        script = str(Path(__file__).with_name("failover_load.py"))
        self._process = subprocess.Popen(
            [sys.executable, script, bootstrap, ",".join(partitions)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("begin\n")
        self._process.stdin.flush()

    def report(self) -> Figures:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("report\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())  # type: ignore[no-any-return]

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Ground:
    """Brokers, ZooKeeper servers, and our own look at both."""

    def __init__(self, directory: Path, session_ms: int, logs: Path) -> None:
        ports = [(free_port(), free_port()) for _ in NUMBERS]
        servers = [
            f"{number}=127.0.0.1:{one}:{other}" for number, (one, other) in zip(NUMBERS, ports, strict=True)
        ]
        self.servers = {
            number: EmbeddedZooKeeper(
                directory / f"zookeeper-{number}", port=free_port(), ensemble=Ensemble.parse(number, servers)
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
            for name in names:
                each = max(1, count // TOPICS)
                orders = [NUMBERS[at:] + NUMBERS[:at] for at in range(3)]
                assignment = {index: list(orders[index % 3]) for index in range(each)}
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


async def watched(ground: Ground, dead: int, names: list[str], killed: float) -> Figures:
    """Until all survivors name living leaders; the times of what happened."""
    gone = asyncio.Event()
    when: dict[str, float] = {}

    async def session() -> None:
        changed = asyncio.Event()
        while await ground.zookeeper.exists(paths.broker(dead), changed.set):
            await changed.wait()
            changed.clear()
        when["gone"] = time.monotonic()
        gone.set()

    async def led(node: Node) -> float:
        await gone.wait()
        async with ClusterClient(node.address) as client:
            while True:
                asked = time.monotonic()
                seen = await view_of(client, node.address, names)
                if all(leader >= 0 and leader != dead for leader, _, _ in seen.values()):
                    return asked
                await asyncio.sleep(0.02)

    survivors = [node for number, node in ground.nodes.items() if number != dead]
    async with asyncio.timeout(BOUND_S):
        _, *ended = await asyncio.gather(session(), *(led(node) for node in survivors))
    return {
        "detection_ms": 1000 * (when["gone"] - killed),
        "election_ms": 1000 * max(max(time_s for time_s in ended if time_s) - when["gone"], 0.0),
    }


async def scene(name: str, ground: Ground, names: list[str], load: Load) -> Figures:
    controller = await ground.controller()
    victim = controller if name == "controller" else next(each for each in NUMBERS if each != controller)
    node, server = ground.nodes[victim], ground.servers[victim]
    load.begin()
    await asyncio.sleep(1.0)
    began = time.monotonic()
    found: Figures = {}
    if name == "restart":
        await asyncio.to_thread(node.stop)
        found["stop_ms"] = 1000 * (time.monotonic() - began)
    else:
        node.kill()
        if name == "site":
            server.kill()
        found |= await watched(ground, victim, names, began)
    if name == "site":
        await asyncio.sleep(0.5)
    else:
        await asyncio.sleep(1.0)
    if name == "restart":
        await asyncio.to_thread(node.start)
        await ground.settled(names)
        await asyncio.sleep(1.0)
    found |= await asyncio.to_thread(load.report)
    if name == "site":
        await asyncio.to_thread(server.start)
    if name != "restart":
        await asyncio.to_thread(node.start)
        await ground.settled(names)
    return found


def written(names: list[str], count: int) -> list[str]:
    """Up to 30 partitions, a third led by each broker."""
    all_of = [f"{name}:{index}" for index in range(max(1, count // TOPICS)) for name in names]
    return all_of[:: max(1, len(all_of) // WRITTEN)][:WRITTEN]


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


async def measure(count: int, scenes: list[str], repeat: int, session_ms: int, logs: Path | None) -> Figures:
    found: Figures = {}
    async with running(session_ms, logs) as ground:
        names, found["create_s"] = await ground.create(count)
        load = Load(ground.nodes[1].address + "," + ground.nodes[2].address, written(names, count))
        try:
            for name in scenes:
                runs = []
                for _ in range(repeat):
                    runs.append(await scene(name, ground, names, load))
                    print(f"  {count} {name}: {json.dumps(runs[-1])}", file=sys.stderr, flush=True)
                found[name] = {"runs": runs, **summary(runs)}
        finally:
            load.end()
    return found


def summary(runs: list[Figures]) -> Figures:
    """Median and largest of each figure in milliseconds."""
    found: Figures = {"errors": sum(sum(run["errors"].values()) for run in runs)}
    for key in ("detection_ms", "election_ms", "stop_ms", "gap_ms", "all_gap_ms", "slowest_ms"):
        values = [run[key] for run in runs if key in run]
        if values:
            found[key] = {"p50": round(statistics.median(values), 1), "max": round(max(values), 1)}
    return found


def limit(count: int, name: str, key: str) -> float | None:
    if name == "restart":
        return LIMITS["restart_gap_ms"] if key == "gap_ms" else None  # type: ignore[return-value]
    by_count: dict[int, float] = LIMITS["election_ms"]  # type: ignore[assignment]
    if key != "election_ms":
        return None
    return next((value for most, value in sorted(by_count.items()) if count <= most), None)


def table(found: dict[int, Figures]) -> Iterator[str]:
    for count, figures in found.items():
        yield f"{count} partitions (made and in sync in {figures['create_s']:.1f} s)"
        heads = ("detection", "election", "producer gap", "slowest record")
        yield f"  {'':12} {' '.join(f'{head:>17}' for head in heads)} errors"
        for name in SCENES:
            if name not in figures:
                continue
            row = figures[name]
            cells = []
            for key in ("detection_ms", "election_ms", "gap_ms", "slowest_ms"):
                value = row.get(key)
                cells.append("-" if value is None else f"{value['p50']:.0f} / {value['max']:.0f} ms")
            missed = [
                f"{key} over {most:g}"
                for key in ("election_ms", "gap_ms")
                if (most := limit(count, name, key)) is not None and row.get(key, {"max": 0})["max"] > most
            ]
            mark = f"  << {', '.join(missed)}" if missed else ""
            yield f"  {name:12} " + " ".join(f"{cell:>17}" for cell in cells) + f" {row['errors']:>6}{mark}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, action="append", help="may be given again; 10 and 1000")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=SCENES, action="append", help="some scenes; all")
    parser.add_argument("--session-timeout-ms", type=int, default=6000)
    parser.add_argument("--logs", type=Path, help="a directory in which the brokers' logs stay")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "failover.json")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the brokers too
    compile_modules()
    found = {
        count: asyncio.run(
            measure(
                count, options.only or list(SCENES), options.repeat, options.session_timeout_ms, options.logs
            )
        )
        for count in options.partitions or [10, 1000]
    }
    print("median / most")
    print("\n".join(table(found)))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"session_timeout_ms": options.session_timeout_ms, "limits": LIMITS, "partitions": found}
    options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
