"""Mirrors with identical offsets, beside a link that translates them and MirrorMaker 2 (identity policy).

Owns these rows. The target is a broker of ours for all three, as mirrors need one. A mirror may cost twice
what the ordinary link costs (it joins no batches), and no more memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bench.brokers.report import Row
from bench.brokers.sides import OURS
from bench.links import report
from bench.links.catch_up import catch_up
from bench.links.data import Data
from bench.links.live import live
from bench.links.sides import MIRROR, MM2

if TYPE_CHECKING:
    from bench.link import Run, Sides

_MUST_CPU, _MEMORY_MAX_MB, _MEMORY_MANY_MAX_MB = 0.5, 150.0, 250.0


def catching_up(run: Run, codec: str) -> Iterator[Row]:
    data = Data(count=int(run.mb * 1000), size=1000, codec=codec)
    topic = run.topic(data)
    sides = run.sides(lambda contender: catch_up(contender, run.to_ours(), topic, data), contenders=_all(run))
    row = report.no_less(f"mirror catch-up {codec}", sides, MIRROR, OURS, "mb_cpu_s", _MUST_CPU)
    yield row | {"given_up": run.given_up}
    yield _memory(f"mirror's peak memory, {codec}", sides, _MEMORY_MAX_MB)


def live_traffic(run: Run) -> Iterator[Row]:
    sides = run.sides(lambda contender: live(contender, run.to_ours()), contenders=_all(run))
    figures = {side: {name: each[name] for name in ("p50_ms", "p99_ms")} for side, each in sides.items()}
    yield {"name": "mirror, 1,000 records/s of 1 KB, ms", **figures, "met": None, "given_up": run.given_up}


def many_partitions(run: Run) -> Iterator[Row]:
    data = Data(count=100_000, size=1000, partitions=1000)
    topic = run.topic(data)
    sides = run.sides(
        lambda contender: catch_up(contender, run.to_ours(), topic, data), once=True, contenders=_all(run)
    )
    row = report.no_less("mirror, 1,000 partitions", sides, MIRROR, OURS, "mb_cpu_s", _MUST_CPU)
    yield row | {"given_up": run.given_up}
    yield _memory("mirror's peak memory, 1,000 partitions", sides, _MEMORY_MANY_MAX_MB)


def _all(run: Run) -> tuple[str, ...]:
    return (MIRROR, OURS, *(MM2 for each in run.contenders if each == MM2))


def _memory(name: str, sides: Sides, most: float) -> Row:
    memory = {side: {"resident_mb": each["resident_mb"]} for side, each in sides.items()}
    return report.at_most(name, memory, memory.get(MIRROR, {}).get("resident_mb"), most)
