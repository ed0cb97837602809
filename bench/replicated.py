"""Three of our brokers beside three of Apache Kafka: acks=all with three replicas, in the same run.

    python -m bench.replicated [--only TEXT …] [--mb 300] [--repeat 3] [--quick] [--no-kafka] [--list]

Topics have 6 partitions, 3 replicas and min.insync.replicas 2; the client is librdkafka with its defaults in
a process of its own, the same for both. CPU and memory are those of the three brokers together, without
ZooKeeper and without Kafka's controller. Sides alternate, each run has a fresh topic, each number is the
median over the repetitions. The last row is one small record at a time beside a thousand idle partitions:
what an append costs must not grow with what stands still. The exit code is 0 also where a demand is missed.
Without Apache Kafka (`ISTHMUS_INTEROP`, default `../shared/interop`) ours is measured alone.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles

from confluent_kafka import KafkaException, Producer

from bench.brokers.cases import PRODUCE, Case
from bench.brokers.clients import Figures, run
from bench.brokers.limits import ROW_S, RowFailed, at_most
from bench.brokers.replicas import isthmus_brokers, kafka_brokers
from bench.brokers.report import Row, beside, compare, given_up, head, line, medians, write
from bench.brokers.sides import ROOT, Side, interop_script

CASES = tuple(
    Case(load=PRODUCE, size=size, acks="all", codec=codec, must_mb_s=1.0, must_cpu=1.0)
    for size, codec in ((1000, "none"), (1000, "lz4"), (100, "none"), (10_000, "none"))
)
IDLE = "one record beside idle partitions"
IDLE_PARTITIONS = 1000
IDLE_RECORDS = 200
BUSY_PARTITIONS = 10
START_S = 600.0
WARM_UP_MB = 300.0


class Bench:
    def __init__(self, options: argparse.Namespace, script: Path) -> None:
        self._options = options
        self._script = script
        self.sides: list[Side] = []

    def warm_up(self) -> None:
        for side in self.sides:
            print(f"warming up {side.name}", file=sys.stderr, flush=True)
            self._measure(side, CASES[0], min(WARM_UP_MB, self._options.mb))

    def _measure(self, side: Side, case: Case, mb: float) -> Figures:
        topic = side.topic(case.partitions)
        try:
            return run(side, case, topic, mb, self._script)
        finally:
            side.drop(topic)

    def load(self, case: Case) -> Row:
        mb = self._options.mb * (0.3 if case.size < 1000 else 1.0)
        runs: dict[str, list[Figures]] = {side.name: [] for side in self.sides}
        for number in range(self._options.repeat):
            for side in self.sides[:: 1 if number % 2 == 0 else -1]:
                runs[side.name].append(self._measure(side, case, mb))
        row: Row = {"name": case.name, **{name: medians(each) for name, each in runs.items()}}
        for side in self.sides:
            row[side.name]["resident_mb"] = round(side.resident_mb(), 1)
        compare(row, case.must_mb_s, case.must_cpu)
        return row

    def idle(self) -> Row:
        count = 100 if self._options.quick else IDLE_PARTITIONS
        found = {side.name: _beside_idle(side, count) for side in self.sides}
        return beside(IDLE, found, ("cpu_ms",), 1.0)


def _beside_idle(side: Side, partitions: int) -> Figures:
    """`cpu_ms` of all brokers for one record to one of a few partitions, above what they use while idle."""
    topic = side.topic(partitions)
    producer = Producer({"bootstrap.servers": side.bootstrap, "acks": "all", "linger.ms": 0})
    producer.list_topics(topic, timeout=60)
    try:
        for number in range(50):
            producer.produce(topic, b"x" * 100, partition=number % BUSY_PARTITIONS)
            producer.flush(30)
        before, began = side.cpu_s(), time.perf_counter()
        time.sleep(5)
        idle = (side.cpu_s() - before) / (time.perf_counter() - began)
        times = []
        before, began = side.cpu_s(), time.perf_counter()
        for number in range(IDLE_RECORDS):
            sent = time.perf_counter()
            producer.produce(topic, b"x" * 100, partition=number % BUSY_PARTITIONS)
            if producer.flush(30):
                raise RowFailed("a record was not acknowledged within 30 s")
            times.append(time.perf_counter() - sent)
            time.sleep(0.01)
        used = side.cpu_s() - before - idle * (time.perf_counter() - began)
    finally:
        side.drop(topic)
    cuts = quantiles(times, n=100)
    return {
        "partitions": float(partitions),
        "cpu_ms": round(max(used, 0.01) / IDLE_RECORDS * 1000, 3),
        "idle_cpu_percent": round(100 * idle, 2),
        "p50_ms": round(cuts[49] * 1000, 2),
        "p99_ms": round(cuts[98] * 1000, 2),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=float, default=300, help="record values per run (100 B: 0.3 of it)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], help="rows whose name contains this text")
    parser.add_argument("--quick", action="store_true", help="little data, one run: does it all work?")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "replicated.json")
    options = parser.parse_args()
    if options.quick:
        options.mb, options.repeat = min(options.mb, 30.0), 1
    return options


def measured(name: str, step: Callable[[], Row]) -> Row:
    """The row of a step, or one that says why there is none."""
    try:
        with at_most(2 * ROW_S):
            return step()
    except (RowFailed, KafkaException, subprocess.SubprocessError) as error:
        return given_up(name, f"not measured: {error}")


def main() -> None:
    options = arguments()
    script = interop_script()
    bench = Bench(options, script)
    steps: list[tuple[str, Callable[[], Row]]] = [
        (case.name, lambda case=case: bench.load(case))  # type: ignore[misc]
        for case in CASES
    ]
    steps.append((IDLE, bench.idle))
    chosen = [step for step in steps if not options.only or any(text in step[0] for text in options.only)]
    if options.list:
        print("\n".join(name for name, _ in chosen))
        return
    data = Path(tempfile.mkdtemp(prefix="bench-replicated-", dir=os.environ.get("TMPDIR")))
    rows: list[Row] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the brokers too
    try:
        with contextlib.ExitStack() as running:
            with at_most(START_S):
                bench.sides.append(running.enter_context(isthmus_brokers(data)))
                if options.no_kafka or not script.is_file():
                    why = "" if options.no_kafka else f": no {script}"
                    print(f"Apache Kafka is not measured{why}; the rows show our side alone", flush=True)
                else:
                    bench.sides.append(running.enter_context(kafka_brokers(script, data)))
            with at_most(2 * ROW_S):
                bench.warm_up()
            print(head(), flush=True)
            for name, step in chosen:
                rows.append(measured(name, step))
                print(line(rows[-1]), flush=True)
    except RowFailed as error:  # before the first row
        raise SystemExit(f"bench.replicated: {error}") from None
    finally:
        shutil.rmtree(data, ignore_errors=True)
        if rows:
            described = {"partitions": 6, "replicas": 3, "mb_per_run": options.mb, "repeat": options.repeat}
            write(options.json, described, rows)


if __name__ == "__main__":
    main()
