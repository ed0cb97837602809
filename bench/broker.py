"""Our broker beside Apache Kafka in the same run: throughput, broker CPU, latency, memory, start.

    python -m bench.broker [--only TEXT …] [--mb 500] [--repeat 3] [--quick] [--no-kafka]
                           [--long] [--list]

Both brokers run with default settings and one replica and get the same loads from the same clients with
their defaults: librdkafka and Kafka's Java tools (`bench/brokers/`). Sides alternate, each run has a fresh
topic, each number is the median over the repetitions. Broker CPU is user and system time of the broker's
process alone.
Kafka's JVM gets faster over its first gigabytes: both sides are warmed up, and figures of little data (`--mb`
below the default) flatter us. Rows that miss their demand are marked; the exit code is 0 all the same: a busy
machine is no reason to fail. A row that hangs or fails is given up and said so; the whole run ends within
`limits.RUN_S` and names the rows it had no time for. Rows of thousands of partitions and connections come
with `--long`. Without Apache Kafka (`ISTHMUS_INTEROP`, default `../shared/interop`) ours is measured alone.
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
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException

from bench.brokers import latency, report, standing
from bench.brokers.cases import CASES, FETCH, JAVA, PRODUCE, Case
from bench.brokers.clients import Figures, run
from bench.brokers.limits import ROW_S, RUN_S, RowFailed, TimeLeft, at_most
from bench.brokers.report import Row, beside, bound, compare, given_up, medians
from bench.brokers.sides import OURS, ROOT, Side, apache_kafka, interop_script, isthmus

WARM_UP_MB = 300.0
LONG_S = 3600.0
START_S = 180.0


class Bench:
    """The running sides and what to measure. A method per kind of row."""

    def __init__(self, options: argparse.Namespace, script: Path, data: Path) -> None:
        self._options = options
        self._script = script
        self._data = data
        self.sides: list[Side] = []

    def warm_up(self) -> None:
        for side in self.sides:
            print(f"warming up {side.name}", file=sys.stderr, flush=True)
            self._measure(side, Case(load=FETCH, size=1000), min(WARM_UP_MB, self._options.mb))

    def _measure(self, side: Side, case: Case, mb: float) -> Figures:
        topic = side.topic(case.partitions)
        try:
            if case.load == FETCH:
                # Kafka's own tool reads what librdkafka wrote: the file is the same for both clients.
                fill = Case(load=PRODUCE, size=case.size, codec=case.codec)
                run(side, fill, topic, mb, self._script)
            return run(side, case, topic, mb, self._script)
        finally:
            side.drop(topic)

    def _alternating(self, name: str, once: Callable[[Side], Figures]) -> dict[str, Figures]:
        runs: dict[str, list[Figures]] = {side.name: [] for side in self.sides}
        for number in range(self._options.repeat):
            for side in self.sides[:: 1 if number % 2 == 0 else -1]:
                progress = f"{name}: run {number + 1} of {self._options.repeat}, {side.name}"
                print(f"\r{progress:78}", end="", file=sys.stderr, flush=True)
                runs[side.name].append(once(side))
        print(f"\r{'':78}\r", end="", file=sys.stderr, flush=True)
        return {side: medians(each) for side, each in runs.items()}

    def load(self, case: Case) -> Row:
        mb = self._options.mb * case.share / (2 if case.client == JAVA else 1)
        found = self._alternating(case.name, lambda side: self._measure(side, case, mb))
        row: Row = {"name": case.name, **found}
        for side in self.sides:
            row[side.name]["resident_mb"] = round(side.resident_mb(), 1)
        compare(row, case.must_mb_s, case.must_cpu)
        return row

    def end_to_end(self, name: str, once: Callable[[Side], Figures]) -> Row:
        found = self._alternating(name, once)
        return beside(name, found, ("p50_ms", "p99_ms"), 1.0)

    def start(self) -> Row:
        found = {side.name: {"seconds": round(side.start_s, 2)} for side in self.sides}
        return beside("start to ready", found, ("seconds",), 0.33)

    def resident(self) -> Row:
        found = {side.name: {"mb": round(side.resident_mb(), 1)} for side in self.sides}
        return beside("resident memory after these loads", found, ("mb",), 0.25)

    def lagging_reader(self) -> Row:
        name = "small producer, lagging reader"
        return self._slowed(
            name,
            lambda: latency.beside_lagging_reader(self._ours, self._options.mb, self._script, self._data),
        )

    def cleaner(self) -> Row:
        mb = 4 * self._options.mb
        return self._slowed(
            "small producer, cleaner at work", lambda: latency.beside_cleaner(self._ours, mb, self._data)
        )

    def _slowed(self, name: str, measure: Callable[[], dict[str, Figures]]) -> Row:
        """Medians of some turns, each with its own quiet time before its load."""
        turns = [measure() for _ in range(self._options.repeat)]
        found = {part: medians([turn[part] for turn in turns]) for part in turns[0]}
        quiet, loaded = found["quiet"]["p99_ms"], found["loaded"]["p99_ms"]
        value = None if quiet is None or loaded is None else round(loaded / quiet, 2)
        return bound(name, found, value=value, must_max=latency.MUST_RATIO)

    @property
    def _ours(self) -> Side:
        return next(side for side in self.sides if side.name == OURS)

    def _alone(self, name: str, measure: Callable[[Side], Figures], limit: float) -> Row:
        with isthmus(self._data / name.partition(",")[0].replace(" ", "-")) as side:
            figures = measure(side)
        return bound(name, figures, value=figures["kb_each"], must_max=limit)

    def idle_connections(self) -> Row:
        count = 10_000 if self._options.long else 1000
        return self._alone("idle connection, KB", lambda side: standing.idle_connections(side, count), 40)

    def idle_partitions(self) -> Row:
        count = 200 if self._options.quick else 2000
        return self._alone("idle partition, KB", lambda side: standing.idle_partitions(side, count), 20)

    def many_partitions(self) -> Iterator[Row]:
        count = 400 if self._options.quick else 4000
        found = standing.many_partitions(self._data / "many", count)
        for figure, limit in (("clean_start_s", 5), ("start_after_kill_s", 15), ("metadata_ms", 20)):
            words = figure.rpartition("_")[0].replace("_", " ")
            name = f"{count} partitions: {words}"
            yield bound(name, {figure: found[figure]}, value=found[figure], must_max=limit)


Step = tuple[str, Callable[[], Row | Iterator[Row]]]


def steps(bench: Bench, options: argparse.Namespace, script: Path) -> list[Step]:
    """Everything that can be measured, by name, in the order of running."""
    java = script.is_file()
    records = 1000 if options.quick else 5000
    found: list[Step] = [("start to ready", bench.start)]
    loads = [case for case in CASES if java or case.client != JAVA]
    found += [(case.name, partial(bench.load, case)) for case in loads if case.must_mb_s is not None]
    found.append(("resident memory after these loads", bench.resident))
    pair, tool = "end to end, librdkafka pair", "end to end, Java EndToEndLatency"
    found.append(
        (pair, lambda: bench.end_to_end(pair, lambda side: latency.end_to_end_librdkafka(side, records)))
    )
    if java:
        found.append(
            (
                tool,
                lambda: bench.end_to_end(tool, lambda side: latency.end_to_end_java(side, records, script)),
            )
        )
    found += [
        ("small producer, lagging reader", bench.lagging_reader),
        ("small producer, cleaner at work", bench.cleaner),
        ("idle partition, KB", bench.idle_partitions),
        ("idle connection, KB", bench.idle_connections),
    ]
    found += [(case.name, partial(bench.load, case)) for case in loads if case.must_mb_s is None]
    if options.long:
        found.append(("many partitions: start and metadata", bench.many_partitions))
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--mb", type=float, default=300, help="record values per run (Java tools: half of it)"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], help="rows whose name contains this text")
    parser.add_argument("--quick", action="store_true", help="little data, one run: does it all work?")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument(
        "--long",
        action="store_true",
        help="also 4,000 partitions and 10,000 connections; no limit for the run",
    )
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "broker.json")
    options = parser.parse_args()
    if options.quick:
        options.mb, options.repeat = min(options.mb, 30.0), 1
    return options


def measured(name: str, step: Callable[[], Row | Iterator[Row]], limit_s: float, left: TimeLeft) -> list[Row]:
    """The rows of a step, or one that says why there are none."""
    if left() <= 0:
        return [given_up(name, "not measured: the time of the whole run is over")]
    try:
        with at_most(min(limit_s, left())):
            found = step()
            return [found] if isinstance(found, dict) else list(found)
    except (RowFailed, KafkaException, subprocess.SubprocessError) as error:
        return [given_up(name, f"not measured: {error}")]


def main() -> None:
    options = arguments()
    script = interop_script()
    data = Path(tempfile.mkdtemp(prefix="bench-broker-", dir=os.environ.get("TMPDIR")))
    bench = Bench(options, script, data)
    chosen = [
        step
        for step in steps(bench, options, script)
        if not options.only or any(text in step[0] for text in options.only)
    ]
    rows: list[Row] = []
    try:
        if options.list:
            print("\n".join(name for name, _ in chosen))
            return
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the brokers too
        with contextlib.ExitStack() as running:
            with at_most(START_S):
                bench.sides.append(running.enter_context(isthmus(data / "data")))
                if options.no_kafka or not script.is_file():
                    why = "" if options.no_kafka else f": no {script}"
                    print(f"Apache Kafka is not measured{why}; the rows show our side alone", flush=True)
                else:
                    bench.sides.append(running.enter_context(apache_kafka(script)))
                bench.warm_up()
            print(report.head(), flush=True)
            left = TimeLeft(LONG_S if options.long else RUN_S)
            for name, step in chosen:
                for row in measured(name, step, LONG_S if options.long else ROW_S, left):
                    rows.append(row)
                    print(report.line(row), flush=True)
    finally:
        shutil.rmtree(data, ignore_errors=True)
        if rows:
            described = {"partitions": 6, "mb_per_run": options.mb, "repeat": options.repeat}
            report.write(options.json, described, rows)


if __name__ == "__main__":
    main()
