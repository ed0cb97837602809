"""Many partitions: start, memory and Metadata of our broker, beside Apache Kafka in the same run.

    python -m bench.partitions [--count 400] [--connections 1000] [--kafka] [--json FILE]

The budgets are for 4,000 partitions (`--count 4000`, minutes with `--kafka`); the default shows trends.
Starts are from the command to being ready, after a clean stop and after SIGKILL; `…_cpu_s` is what the
broker's process has used by then, which a busy machine changes little. The Metadata figure is broker CPU for
one request for all topics, the time that the event loop is taken. Rows above their budget are
marked; the exit code is 0 all the same: a busy machine is no reason to fail.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.brokers import standing
from bench.brokers.sides import ROOT, THEIRS, Side, broker, interop_script, zookeeper
from topology.runtime import free_port

Figures = dict[str, float]
BUDGETS = {
    "start_s": 5.0,
    "start_after_kill_s": 15.0,
    "metadata_ms": 20.0,
    "kb_per_partition": 20.0,
    "kb_per_connection": 40.0,
}
"""Of issue 4, for 4,000 partitions."""
RATIOS = {"empty_start_s": 1 / 3, "resident_mb": 1 / 4}
"""Ours to Apache Kafka's, at most."""
TOPICS = 10


def create(side: Side, count: int) -> float:
    """Seconds to make `count` partitions in a few topics."""
    began = time.monotonic()
    for _ in range(TOPICS):
        side.topic(count // TOPICS)
    return time.monotonic() - began


def started(found: Figures, name: str, side: Side) -> None:
    found[f"{name}_s"] = side.start_s
    found[f"{name}_cpu_s"] = side.cpu_s()


def ours(directory: Path, count: int, connections: int) -> Figures:
    found: Figures = {}
    with zookeeper(directory / "zookeeper") as address:
        data = directory / "data"
        with broker(data, address) as side:
            started(found, "empty_start", side)
            before = standing.settled_mb(side)
            found["create_s"] = create(side, count)
            after = standing.settled_mb(side)
            found["kb_per_partition"] = (after - before) * standing.KB / count
            found["metadata_ms"] = standing.metadata_ms(side)
            found["resident_mb"] = side.resident_mb()
            side.process.terminate()
            side.process.wait(120)
        with broker(data, address) as side:
            started(found, "start", side)
            os.kill(side.pid, signal.SIGKILL)
        with broker(data, address) as side:
            started(found, "start_after_kill", side)
            if connections:
                idle = standing.idle_connections(side, connections)
                found["kb_per_connection"] = idle["kb_each"] or 0.0
    return found


@contextmanager
def kafka_started(script: Path, name: str, port: int, environment: dict[str, str]) -> Iterator[Side]:
    began = time.monotonic()
    started = subprocess.run(
        [str(script), "start", name, str(port)], env=environment, check=True, capture_output=True, text=True
    )
    yield Side(THEIRS, port, int(started.stdout.split()[-1]), time.monotonic() - began)
    subprocess.run([str(script), "stop", name], check=False, capture_output=True)


def kafka(script: Path, count: int) -> Figures:
    name, port = f"partitions-{os.getpid()}", free_port()
    environment = {**os.environ, "INTEROP_CONTROLLER_PORT": str(free_port())}
    found: Figures = {}
    try:
        with kafka_started(script, name, port, environment):
            pass  # this start formats the directory as well
        with kafka_started(script, name, port, environment) as side:
            started(found, "empty_start", side)
            before = standing.settled_mb(side)
            found["create_s"] = create(side, count)
            found["kb_per_partition"] = (standing.settled_mb(side) - before) * standing.KB / count
            found["metadata_ms"] = standing.metadata_ms(side)
            found["resident_mb"] = side.resident_mb()
        with kafka_started(script, name, port, environment) as side:
            started(found, "start", side)
            os.kill(side.pid, signal.SIGKILL)
            side.process.wait(60)
        with kafka_started(script, name, port, environment) as side:
            started(found, "start_after_kill", side)
    finally:
        subprocess.run([str(script), "wipe", name], check=False, capture_output=True)
    return found


def table(found: dict[str, Figures]) -> Iterator[str]:
    mine, other = found["isthmus"], found.get(THEIRS, {})
    yield f"{'':22} {'isthmus':>10} {'Kafka':>10} {'ratio':>7}  budget"
    for name, value in mine.items():
        theirs = other.get(name)
        ratio = value / theirs if theirs else None
        limits = []
        if name in BUDGETS:
            limits.append(f"at most {BUDGETS[name]:g}{'' if value <= BUDGETS[name] else ' << missed'}")
        if name in RATIOS:
            missed = ratio is not None and ratio > RATIOS[name]
            limits.append(f"ratio at most {RATIOS[name]:.2f}{' << missed' if missed else ''}")
        shown = "-" if theirs is None else f"{theirs:.2f}"
        yield (
            f"{name:22} {value:10.2f} {shown:>10} {'-' if ratio is None else f'{ratio:.2f}':>7}"
            f"  {', '.join(limits)}"
        ).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--connections", type=int, default=1000, help="idle ones; 0 leaves them out")
    parser.add_argument("--kafka", action="store_true", help="beside Apache Kafka")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "partitions.json")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the brokers too
    with tempfile.TemporaryDirectory(prefix="bench-partitions-") as name:
        found = {"isthmus": ours(Path(name), options.count, options.connections)}
    if options.kafka:
        script = interop_script()
        if not script.is_file():
            sys.exit(f"no Apache Kafka here: {script} does not exist")
        found[THEIRS] = kafka(script, options.count)
    print(f"{options.count} partitions")
    print("\n".join(table(found)))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"count": options.count, "budgets": BUDGETS, "ratios": RATIOS, **found}
    options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
