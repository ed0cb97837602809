"""Start-up time and resident memory of each kind of process, as a user starts them.

    python -m bench.processes [--repeat 5] [--json build/bench/processes.json]

A broker's start is measured from the start of the command to its ready line (Python start, imports, opening
the log, registration, election) against a ZooKeeper that already runs; `embedded` includes starting that too.
Memory is of a whole topology (`examples/two-datacenters.yaml`) a few seconds after it is ready, idle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from topology.load import load_topology
from topology.process import SupervisedProcess
from topology.supervisor import Supervisor

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples/two-datacenters.yaml"


async def start_time(name: str, arguments: list[str], folder: Path) -> float:
    """Seconds to the ready line; the process is stopped again."""
    process = SupervisedProcess(name, (sys.executable, "-m", "isthmus", *arguments), folder / f"{name}.log")
    began = time.monotonic()
    process.spawn()
    await process.wait_ready(60)
    took = time.monotonic() - began
    await process.stop()
    return took


async def broker_starts(repeat: int) -> dict[str, float]:
    embedded, plain = [], []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            alone = ["broker", "--embedded-zookeeper", "--listener", "PLAINTEXT://127.0.0.1:0"]
            embedded.append(await start_time("embedded", [*alone, "--data", str(folder / "a")], folder))
            log = folder / "zookeeper.log"
            command = (sys.executable, "-m", "isthmus", "zookeeper", "--port", "0")
            zookeeper = SupervisedProcess("zookeeper", (*command, "--data", str(folder / "z")), log)
            zookeeper.spawn()
            await zookeeper.wait_ready(60)
            address = log.read_text().split("ready: ")[1].split(",")[0]
            given = ["broker", "--zookeeper", address, "--listener", "PLAINTEXT://127.0.0.1:0"]
            plain.append(await start_time("plain", [*given, "--data", str(folder / "b")], folder))
            await zookeeper.stop()
    return {"broker_s": statistics.median(plain), "broker_with_zookeeper_s": statistics.median(embedded)}


async def memory() -> dict[str, float]:
    """Resident MB by process name; a ZooKeeper's includes its JVM."""
    with tempfile.TemporaryDirectory() as name:
        topology = load_topology(EXAMPLE).model_copy(update={"data_directory": Path(name)})
        supervisor = Supervisor(topology, EXAMPLE)
        await supervisor.start()
        try:
            await asyncio.sleep(5)
            found = {}
            for row in supervisor.status():
                if row["pid"] is not None:
                    root = psutil.Process(int(row["pid"]))
                    family = [root, *root.children(recursive=True)]
                    found[str(row["name"])] = sum(p.memory_info().rss for p in family) / 1e6
            return found
        finally:
            await supervisor.stop()


async def measure(repeat: int) -> dict[str, Any]:
    return {"start": await broker_starts(repeat), "resident_mb": await memory()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path, default=ROOT / "build/bench/processes.json")
    options = parser.parse_args()
    found = asyncio.run(measure(options.repeat))
    for name, seconds in found["start"].items():
        print(f"{name:<28} {seconds:6.2f} s (median of {options.repeat})")
    for name, size in found["resident_mb"].items():
        print(f"{name:<28} {size:6.0f} MB resident")
    print(f"{'whole topology':<28} {sum(found['resident_mb'].values()):6.0f} MB resident")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
