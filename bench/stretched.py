"""Produce latency of a stretched cluster against what the round trips between its sites predict.

    python -m bench.stretched [--round-trips 0,5,10,30,100] [--records 60] [--seconds 8] [--json FILE]

Starts the example of three sites with simulated links and gives all of them the same delay. A librdkafka
producer in london writes with acks=all (three replicas, one in each site) to a partition led in london and to
one led in paris. `idle` is one record at a time; `steady` is 200 records a second, so that a follower's fetch
is under way most of the time. Predicted: `topology/latency.py`. Milliseconds, medians.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from ruamel.yaml import YAML

from topology.latency import ProduceLatency, produce_latency
from topology.load import load_topology
from topology.network.control import ask
from topology.routes import network_socket
from topology.runtime import Runtime

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "stretched-three-sites.yaml"
SITES = {1: "london", 2: "paris", 3: "zurich"}
PRODUCER = "london"
STEADY_PER_S = 200
TOPIC = "bench"


def main() -> None:
    asked = _arguments()
    trips = [float(text) for text in asked.round_trips.split(",")]
    with (
        tempfile.TemporaryDirectory(prefix="isthmus-stretched-") as directory,
        _running(Path(directory)) as file,
    ):
        _create_topic(_bootstrap(file, None))
        rows = [row for trip in trips for row in _measure(file, trip, asked.records, asked.seconds)]
    _show(rows)
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    print(f"written: {asked.json}")


def _measure(file: Path, trip_ms: float, records: int, seconds: float) -> Iterator[dict[str, Any]]:
    changes = {"delay_s": trip_ms / 2e3, "jitter_s": 0.0, "loss": 0.0, "bandwidth": None}
    asyncio.run(ask(network_socket(_runtime(file)), {"do": "set", "changes": changes}))
    one_way = {(a, b): trip_ms / 2e3 for a in SITES.values() for b in SITES.values() if a != b}
    for partition, leader in ((0, "london"), (1, "paris")):
        predicted = produce_latency(
            one_way, PRODUCER, leader, [site for site in SITES.values() if site != leader]
        )
        print(f"round trip {trip_ms:g} ms, leader in {leader} …", file=sys.stderr, flush=True)
        yield _row(file, trip_ms, partition, leader, predicted, records, seconds)


def _row(
    file: Path,
    trip_ms: float,
    partition: int,
    leader: str,
    predicted: ProduceLatency,
    records: int,
    seconds: float,
) -> dict[str, Any]:
    settings = {"bootstrap.servers": _bootstrap(file, PRODUCER), "acks": "all", "linger.ms": 0}
    producer = Producer({**settings, "enable.idempotence": True})
    _idle(producer, partition, 10)  # connections, producer id, followers' fetches
    idle = _idle(producer, partition, records)
    steady = _steady(producer, partition, seconds)
    return {
        "round_trip_ms": trip_ms,
        "leader": leader,
        "predicted_idle_ms": predicted.idle * 1e3,
        "idle_ms": median(idle),
        "idle_p99_ms": _percentile(idle, 0.99),
        "predicted_steady_ms": predicted.average * 1e3,
        "steady_ms": median(steady),
        "predicted_worst_ms": predicted.worst * 1e3,
        "steady_p99_ms": _percentile(steady, 0.99),
    }


def _idle(producer: Producer, partition: int, records: int) -> list[float]:
    took: list[float] = []
    for _ in range(records):
        producer.produce(TOPIC, b"x" * 100, partition=partition, on_delivery=_into(took))
        producer.flush(60)
        time.sleep(0.01)  # until followers' next fetches wait at the leader again
    return took


def _steady(producer: Producer, partition: int, seconds: float) -> list[float]:
    took: list[float] = []
    start = time.monotonic()
    for number in range(int(seconds * STEADY_PER_S)):
        while (left := start + number / STEADY_PER_S - time.monotonic()) > 0:
            producer.poll(left)
        producer.produce(TOPIC, b"x" * 100, partition=partition, on_delivery=_into(took))
    producer.flush(60)
    return took


def _into(took: list[float]) -> Any:
    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise SystemExit(f"a record was refused: {error}")
        took.append((message.latency() or 0.0) * 1e3)

    return delivered


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(TOPIC, replica_assignment=[[1, 2, 3], [2, 3, 1]], num_partitions=2)
    admin.create_topics([new])[TOPIC].result(60)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        partitions = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()
        if all(len(partition.isrs) == 3 for partition in partitions):
            return
        time.sleep(0.1)
    sys.exit("the replicas did not come in sync within 60 s")


@contextlib.contextmanager
def _running(directory: Path) -> Iterator[Path]:
    file = directory / "topology.yaml"
    document = YAML(typ="safe").load(EXAMPLE)
    document["clusters"]["main"]["topics"] = {}
    YAML(typ="safe").dump({**document, "data_directory": str(directory / "data")}, file)
    command = [sys.executable, "-m", "isthmus", "up", str(file)]
    log = directory / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "ISTHMUS_PARENT": str(os.getpid())},
        )
    try:
        while b"isthmus topology" not in log.read_bytes():
            if process.poll() is not None:
                sys.exit(f"isthmus up ended:\n{log.read_text(errors='replace')}")
            time.sleep(0.1)
        yield file
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _runtime(file: Path) -> Runtime:
    return Runtime.load(load_topology(file).data_directory)


def _bootstrap(file: Path, site: str | None) -> str:
    return _runtime(file).bootstrap_servers(load_topology(file), "main", site)


def _show(rows: list[dict[str, Any]]) -> None:
    columns = list(rows[0])
    print("| " + " | ".join(columns) + " |")
    print("|" + " --- |" * len(columns))
    for row in rows:
        print(
            "| "
            + " | ".join(f"{row[name]:.1f}" if name != "leader" else row[name] for name in columns)
            + " |"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.stretched",
        description="Produce latency over simulated distances, predicted and measured.",
        epilog="Example: python -m bench.stretched --round-trips 0,30 --seconds 4",
    )
    parser.add_argument("--round-trips", default="0,5,10,30,100", help="milliseconds, by comma")
    parser.add_argument("--records", type=int, default=60, help="records one at a time")
    parser.add_argument("--seconds", type=float, default=8, help=f"of {STEADY_PER_S} records a second")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "stretched.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
