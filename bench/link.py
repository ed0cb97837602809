"""A link of ours beside MirrorMaker 2 (default and tuned), between the same two brokers: all of the table.

    python -m bench.link                          # all rows, beside MirrorMaker 2 (40 to 60 minutes)
    python -m bench.link --no-mm2 --mb 300        # ours alone, a few minutes
    python -m bench.link --list
    python -m bench.link --only 'catch-up lz4' --repeat 5 --mm2-repeat 3
    python -m bench.link --only mirror            # mirrors with identical offsets

MB are 10^6 bytes of record values, figures are medians over the repetitions; ratios compare with the better
of the two MirrorMakers. Between two Apache Kafka brokers where `kafka.sh` is found (in the folder that
ISTHMUS_INTEROP names, by default `../shared/interop` beside the repository), else, or with `--brokers
isthmus`, between two of ours. No row can hang: each contender has its time in each row, the run has its own,
and what was given up is named in the table and in `build/bench/link.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from bench.brokers.limits import RowFailed, TimeLeft
from bench.brokers.report import Row, given_up, medians, write
from bench.brokers.sides import OURS, ROOT, compile_modules, isthmus
from bench.links import failover, mirrors, report
from bench.links.catch_up import catch_up
from bench.links.data import Data, fill
from bench.links.live import live, without_a_link
from bench.links.sides import CONTENDERS, MIRROR, MM2, TUNED, Ground, ground, mm2_script
from protocol.errors import ProtocolError

T = TypeVar("T")
Sides = dict[str, dict[str, Any]]

TURN_S = 300.0
"""For one contender in one row, once."""
RUN_S = 3600.0
_CODECS = {"none": (2.0, 10.0), "lz4": (3.0, 20.0), "zstd": (3.0, 20.0)}
_NEW_TOPIC_MAX_S, _START_MAX_S, _MEMORY_MAX_MB, _MEMORY_MANY_MAX_MB = 2.0, 2.0, 150.0, 250.0


class Run:
    """One run over the rows: whose turn it is, how often, and how long that may take."""

    def __init__(
        self, between: Ground, to_ours: Callable[[], Ground], options: argparse.Namespace, left: TimeLeft
    ) -> None:
        self.between = between
        self.to_ours = to_ours
        """From the same source to a broker of ours, under the same names."""
        self.contenders = (OURS,) if options.no_mm2 else CONTENDERS
        self.mb = float(options.mb)
        self._repeats = {
            OURS: options.repeat,
            report.ALONE: options.repeat,
            MIRROR: options.repeat,
            MM2: options.mm2_repeat,
            TUNED: options.mm2_repeat,
        }
        self._left = left
        self.given_up: dict[str, str] = {}
        self._topics: list[str] = []
        self._warm = False

    def topic(self, data: Data) -> str:
        topic = self.between.source.topic(data.partitions)
        self._topics.append(topic)
        fill(self.between.source.bootstrap, topic, data)
        return topic

    def tidy(self) -> None:
        """Drops what the part that is over has copied from."""
        while self._topics:
            self.between.source.drop(self._topics.pop())

    def sides(
        self,
        turn: Callable[[str], Awaitable[dict[str, float | None]]],
        *,
        once: bool = False,
        contenders: Sequence[str] = (),
    ) -> Sides:
        """Medians by contender; who did not make it is missing, and named in `given_up`.

        They take turns, so that a target whose JVM gets faster by the gigabyte is the same for all of them.
        """
        self.given_up = {}
        runs: dict[str, list[dict[str, float | None]]] = {}
        for number in range(1 if once else max(self._repeats.values())):
            for contender in contenders or self.contenders:
                if contender in self.given_up or (number and (once or number >= self._repeats[contender])):
                    continue
                try:
                    runs.setdefault(contender, []).append(self.turn(partial(turn, contender)))
                except RowFailed as failure:
                    self.given_up[contender] = str(failure)
        return {who: medians(turns) for who, turns in runs.items() if who not in self.given_up}

    def warm(self, turn: Callable[[str], Awaitable[dict[str, float | None]]]) -> None:
        """Turns that are not counted: in the first part one of each contender (a target whose JVM has seen
        one gigabyte takes twice the processor time that it takes after three), then one of ours.
        Raises RowFailed."""
        for contender in (OURS,) if self._warm else self.contenders:
            self.turn(partial(turn, contender))
        self._warm = True

    def turn(self, run: Callable[[], Awaitable[T]]) -> T:
        """One contender's turn. Raises RowFailed."""
        seconds = min(TURN_S, self._left())
        if seconds <= 0:
            raise RowFailed("no time left in this run")

        async def within() -> T:
            async with asyncio.timeout(seconds):
                return await run()

        try:
            return asyncio.run(within())
        except TimeoutError:
            raise RowFailed(f"not done within {seconds:.0f} s") from None
        except (ProtocolError, OSError) as error:
            raise RowFailed(f"{type(error).__name__}: {error}") from error


def catching_up(run: Run, codec: str) -> Iterator[Row]:
    """Throughput; from the same runs the target broker's CPU, the start, and memory."""
    data = Data(count=int(run.mb * 1000), size=1000, codec=codec)
    topic = run.topic(data)

    def turn(contender: str) -> Awaitable[dict[str, float | None]]:
        return catch_up(contender, run.between, topic, data)

    run.warm(turn)
    sides = run.sides(turn)
    lost = run.given_up
    yield report.loads(f"catch-up {codec}", sides, *_CODECS[codec]) | {"given_up": lost}
    yield report.less(
        f"target broker's CPU, {codec}", _only(sides, "target_cpu_s_per_gb"), ("target_cpu_s_per_gb",), 1.0
    )
    if codec == "none":
        starts = _only(sides, "first_record_s")
        yield report.at_most("start to first record", starts, _ours(starts, "first_record_s"), _START_MAX_S)
    memory = _only(sides, "resident_mb")
    yield report.at_most(f"peak memory, {codec}", memory, _ours(memory, "resident_mb"), _MEMORY_MAX_MB)


def exactly_once(run: Run) -> Iterator[Row]:
    """Ours with `exactly_once`, MirrorMaker 2 with `exactly.once.source.support`; no limit is set."""
    data = Data(count=int(run.mb * 1000), size=1000, codec="none")
    topic, between = run.topic(data), replace(run.between, exactly_once=True)
    sides = run.sides(lambda contender: catch_up(contender, between, topic, data))
    row = report.loads("catch-up none, exactly once", sides, None, None)
    yield row | {"met": None, "given_up": run.given_up}
    yield report.less(
        "target broker's CPU, exactly once",
        _only(sides, "target_cpu_s_per_gb"),
        ("target_cpu_s_per_gb",),
        1.0,
    )


def small_records(run: Run, *, one_by_one: bool, codec: str = "none") -> Iterator[Row]:
    data = Data(
        count=300_000 if one_by_one else int(run.mb * 10_000) // 4,
        size=100,
        one_by_one=one_by_one,
        codec=codec,
    )
    topic = run.topic(data)
    sides = run.sides(lambda contender: catch_up(contender, run.between, topic, data))
    name, must = ("one-record batches", 3.0) if one_by_one else ("full batches", 10.0)
    if codec != "none":
        name = f"{name}, {codec}"
    yield report.loads(f"100 B, {name}", sides, None, must) | {"given_up": run.given_up}


def many_partitions(run: Run) -> Iterator[Row]:
    data = Data(count=100_000, size=1000, partitions=1000)
    topic = run.topic(data)
    sides = run.sides(lambda contender: catch_up(contender, run.between, topic, data), once=True)
    memory = _only(sides, "resident_mb")
    row = report.at_most(
        "peak memory, 1,000 partitions", memory, _ours(memory, "resident_mb"), _MEMORY_MANY_MAX_MB
    )
    yield row | {"given_up": run.given_up}


def live_traffic(run: Run) -> Iterator[Row]:
    def turn(contender: str) -> Awaitable[dict[str, float | None]]:
        return without_a_link(run.between) if contender == report.ALONE else live(contender, run.between)

    run.turn(partial(turn, OURS))  # brokers whose JVMs are cold make the first turn's p99 a second
    sides = run.sides(turn, contenders=(report.ALONE, *run.contenders))
    lost = run.given_up
    alone = sides.pop(report.ALONE, {})
    latencies = {side: {name: each[name] for name in ("p50_ms", "p99_ms")} for side, each in sides.items()}
    yield report.less("1,000 records/s of 1 KB, ms", latencies, ("p50_ms", "p99_ms"), 0.25) | {
        "given_up": lost
    }
    yield report.alone("the same, a link that takes no time", alone)
    seen = _only(sides, "new_topic_s")
    yield report.at_most("a new topic is seen", seen, _ours(seen, "new_topic_s"), _NEW_TOPIC_MAX_S)


def reading_again(run: Run) -> Iterator[Row]:
    topic = run.topic(failover.DATA)
    sides = run.sides(lambda contender: failover.read_again(contender, run.between, topic), once=True)
    ours = sides.get(OURS)
    worst = max((abs(value) for value in ours.values()), default=None) if ours else None
    yield report.at_most("read again after failover", sides, worst, 0.0) | {"given_up": run.given_up}


@dataclass(frozen=True)
class Part:
    """Rows that come from the same runs."""

    name: str
    rows: Callable[[Run], Iterator[Row]]


PARTS = (
    *(Part(f"catch-up {codec}", partial(catching_up, codec=codec)) for codec in _CODECS),
    Part("exactly once", exactly_once),
    Part("small full batches", partial(small_records, one_by_one=False)),
    Part("small one-record batches", partial(small_records, one_by_one=True)),
    *(
        Part(f"small one-record batches {codec}", partial(small_records, one_by_one=True, codec=codec))
        for codec in ("lz4", "zstd")
    ),
    Part("live latency and new topic", live_traffic),
    Part("failover", reading_again),
    Part("many partitions", many_partitions),
    *(
        Part(f"mirror catch-up {codec}", partial(mirrors.catching_up, codec=codec))
        for codec in ("none", "lz4")
    ),
    Part("mirror live latency", mirrors.live_traffic),
    Part("mirror with 1,000 partitions", mirrors.many_partitions),
)


def _only(sides: Sides, figure: str) -> Sides:
    return {side: {figure: figures[figure]} for side, figures in sides.items()}


def _ours(sides: Sides, figure: str) -> float | None:
    value: float | None = sides.get(OURS, {}).get(figure)
    return value


def measure(options: argparse.Namespace, parts: list[Part], rows: list[Row], *, kafka: bool) -> None:
    """Adds to `rows` what is known as soon as it is known."""
    compile_modules()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="isthmus-bench-link-")))
        between = stack.enter_context(ground(folder, kafka=kafka))

        @cache
        def to_ours() -> Ground:
            target = stack.enter_context(isthmus(folder / "brokers" / "mirrors"))
            return Ground(between.source, target, folder, same_names=True)

        run = Run(between, to_ours, options, TimeLeft(options.minutes * 60))
        print(report.head(), flush=True)
        for part in parts:
            try:
                for row in part.rows(run):
                    rows.append(row)
                    print(report.line(row), flush=True)
            except RowFailed as failure:
                rows.append(given_up(part.name, str(failure)))
                print(report.line(rows[-1]), flush=True)
            finally:
                run.tidy()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=1000, help="of record values, of a catch-up")
    parser.add_argument("--repeat", type=int, default=3, help="turns of ours; medians are shown")
    parser.add_argument("--mm2-repeat", type=int, default=1, help="turns of each MirrorMaker 2")
    parser.add_argument("--minutes", type=float, default=RUN_S / 60, help="limit of the whole run")
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="the part of this name, else those that hold it"
    )
    parser.add_argument("--no-mm2", action="store_true", help="ours alone")
    parser.add_argument("--brokers", choices=("kafka", "isthmus"), help="between which is copied")
    parser.add_argument("--list", action="store_true", help="names of the parts")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "link.json")
    options = parser.parse_args()
    names = {part.name for part in PARTS}
    parts = [
        part
        for part in PARTS
        if not options.only
        or any(part.name == text if text in names else text in part.name for text in options.only)
    ]
    if options.list:
        print("\n".join(part.name for part in parts))
        return 0
    if not parts:
        print(f"no part holds {' or '.join(options.only)}; --list names them", file=sys.stderr)
        return 2
    java = mm2_script().is_file() and shutil.which("java") is not None
    kafka = java if options.brokers is None else options.brokers == "kafka"
    if not java and (kafka or not options.no_mm2):
        print(f"no {mm2_script()} or no java: ours alone, between brokers of ours", flush=True)
        kafka, options.no_mm2 = False, True
    began = time.monotonic()
    rows: list[Row] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # brokers are ended too
    try:
        measure(options, parts, rows, kafka=kafka)
    finally:
        facts = {"mb": options.mb, "brokers": "kafka" if kafka else "isthmus", "cpus": os.cpu_count()}
        write(options.json, facts | {"minutes": round((time.monotonic() - began) / 60, 1)}, rows)
        print(f"{options.json}: {len(rows)} rows")
    return 1 if any("not_measured" in row or row.get("given_up") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
