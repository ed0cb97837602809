"""How long producers wait when a broker, the controller or a site is lost, and at a planned restart.

    python -m bench.failover [--partitions 10 --partitions 1000] [--repeat 3] [--json FILE]
    python -m bench.failover --partitions 4000 --repeat 2 --only leader --only restart

Three brokers with racks, three ZooKeeper servers of one ensemble, three replicas, min.insync.replicas 2. A
producer (`failover_load.py`) writes to up to 30 partitions. `detection_ms` is from the kill until ZooKeeper
ends the dead broker's session (`zookeeper.session.timeout.ms`, a setting); `election_ms` is from then until
every surviving broker's metadata names a living leader for each partition, `election_cpu_ms` what the busiest
of them has worked meanwhile (which says more on a busy machine); `gap_ms` is the longest time that
the producer had no acknowledgement in any one partition. Rows above their limit are marked; the exit code is
0 all the same: a busy machine is no reason to fail.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.brokers.sides import ROOT, compile_modules
from bench.failover_ground import (
    BOUND_S,
    NUMBERS,
    TOPICS,
    Figures,
    Ground,
    Load,
    Node,
    running,
    view_of,
)
from broker.control import paths
from protocol.client import ClusterClient

SCENES = ("leader", "controller", "site", "restart", "controller-restart")
RESTARTS = ("restart", "controller-restart")
WRITTEN = 30
LIMITS = {"election_ms": {1000: 1000.0, 4000: 3000.0}, "restart_gap_ms": 500.0}
"""Of issue 5: new leaders after detection, by number of partitions; what a planned restart may cost."""


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
        """One topic after the other: asking for thousands of partitions all the time is a load of its own."""
        await gone.wait()
        spent = node.cpu_s()
        async with ClusterClient(node.address) as client:
            for name in names:
                while True:
                    asked = time.monotonic()
                    seen = await view_of(client, node.address, [name])
                    if all(leader >= 0 and leader != dead for leader, _, _ in seen.values()):
                        break
                    await asyncio.sleep(0.02)
        cpu.append(node.cpu_s() - spent)
        return asked

    cpu: list[float] = []
    survivors = [node for number, node in ground.nodes.items() if number != dead]
    async with asyncio.timeout(BOUND_S):
        _, *ended = await asyncio.gather(session(), *(led(node) for node in survivors))
    return {
        "detection_ms": 1000 * (when["gone"] - killed),
        "election_ms": 1000 * max(max(time_s for time_s in ended if time_s) - when["gone"], 0.0),
        "election_cpu_ms": 1000 * max(cpu),
    }


async def scene(name: str, ground: Ground, names: list[str], load: Load) -> Figures:
    controller = await ground.controller()
    chosen = controller if "controller" in name else next(each for each in NUMBERS if each != controller)
    node, server = ground.nodes[chosen], ground.servers[chosen]
    if name in RESTARTS:
        return await restarted(node, ground, names, load)
    await asyncio.to_thread(load.begin)
    await asyncio.sleep(1.0)
    began = time.monotonic()
    node.kill()
    if name == "site":
        server.kill()
    found = await watched(ground, chosen, names, began)
    await asyncio.sleep(0.5)
    found |= await asyncio.to_thread(load.report)
    if name == "site":
        await asyncio.to_thread(server.start)
    await asyncio.to_thread(node.start)
    await ground.settled(names)
    return found


async def restarted(node: Node, ground: Ground, names: list[str], load: Load) -> Figures:
    """The gap while it stops and is away, and the one while it comes back and leads again."""
    await asyncio.to_thread(load.begin)
    await asyncio.sleep(1.0)
    began = time.monotonic()
    await asyncio.to_thread(node.stop)
    stopped = time.monotonic()
    await asyncio.sleep(1.0)
    leaving = await asyncio.to_thread(load.report)
    await asyncio.to_thread(load.begin)
    await asyncio.to_thread(node.start)
    started = time.monotonic()
    await ground.settled(names)
    settled = time.monotonic()
    await asyncio.sleep(1.0)
    coming = await asyncio.to_thread(load.report)
    return {
        "stop_ms": 1000 * (stopped - began),
        "in_sync_ms": 1000 * (settled - started),
        "leaving_gap_ms": leaving["gap_ms"],
        "coming_gap_ms": coming["gap_ms"],
        **{key: max(leaving[key], coming[key]) for key in ("gap_ms", "all_gap_ms", "slowest_ms")},
        **{key: leaving[key] + coming[key] for key in ("sent", "acknowledged")},
        "errors": {
            name: leaving["errors"].get(name, 0) + coming["errors"].get(name, 0)
            for name in leaving["errors"] | coming["errors"]
        },
    }


def written(names: list[str], count: int) -> list[str]:
    """Up to 30 partitions, a third led by each broker."""
    all_of = [f"{name}:{index}" for index in range(max(1, count // TOPICS)) for name in names]
    return all_of[:: max(1, len(all_of) // WRITTEN)][:WRITTEN]


async def measure(count: int, scenes: list[str], repeat: int, session_ms: int, logs: Path | None) -> Figures:
    found: Figures = {}
    async with running(session_ms, logs) as ground:
        names, found["create_s"] = await ground.create(count)
        load = Load(ground.nodes[1].address + "," + ground.nodes[2].address, written(names, count), logs)
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
    for key in sorted({key for run in runs for key in run if key.endswith("_ms")}):
        values = [run[key] for run in runs if key in run]
        if values:
            found[key] = {"p50": round(statistics.median(values), 1), "max": round(max(values), 1)}
    return found


def limit(count: int, name: str, key: str) -> float | None:
    if name in RESTARTS:
        return LIMITS["restart_gap_ms"] if key == "gap_ms" else None  # type: ignore[return-value]
    by_count: dict[int, float] = LIMITS["election_ms"]  # type: ignore[assignment]
    if key != "election_ms":
        return None
    return next((value for most, value in sorted(by_count.items()) if count <= most), None)


def table(found: dict[int, Figures]) -> Iterator[str]:
    for count, figures in found.items():
        yield f"{count} partitions (made and in sync in {figures['create_s']:.1f} s)"
        heads = ("detection", "election", "producer gap", "slowest record")
        yield f"  {'':18} {' '.join(f'{head:>17}' for head in heads)} errors"
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
            yield f"  {name:18} " + " ".join(f"{cell:>17}" for cell in cells) + f" {row['errors']:>6}{mark}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, action="append", help="may be given again; 10 and 1000")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=SCENES, action="append", help="some scenes; all")
    parser.add_argument("--session-timeout-ms", type=int, default=6000)
    parser.add_argument(
        "--logs", type=Path, help="a directory for the logs of brokers and of the producer's client"
    )
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
