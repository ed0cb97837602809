"""Changing the roles of many mirrored partitions, between two brokers of ours: seconds, and CPU-seconds.

    python -m bench.mirrors                       # 1,000 partitions in 10 topics
    python -m bench.mirrors --partitions 4000 --topics 400

Each step as the command of that name does it: the link's first start (mirrors are made and filled), a
restart, promote, reverse, and a failover of what goes back. All but the brokers runs in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from bench.brokers.sides import ROOT, Side, isthmus
from bench.links.data import Data, fill
from protocol.client import LATEST, ClusterClient, NewTopic
from protocol.types import TopicPartition
from replicator.connected import LinkStatus
from replicator.mirrors.assessing import find_mirrors
from replicator.mirrors.reversing import reverse, reversible
from replicator.mirrors.running import run_mirrors
from replicator.mirrors.switching import failover, promote
from replicator.settings import LinkSettings

_RECORDS = 10
"""In each partition."""


class Steps:
    """What each step took."""

    def __init__(self, brokers: tuple[Side, Side]) -> None:
        self.rows: dict[str, dict[str, float]] = {}
        self._brokers = brokers

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        began, own, theirs = time.monotonic(), _cpu_s(), self._theirs()
        yield
        self.rows[name] = {
            "s": round(time.monotonic() - began, 2),
            "cpu_s": round(_cpu_s() - own, 2),
            "brokers_cpu_s": round(self._theirs() - theirs, 2),
        }
        print(f"{name:14}", *(f"{key} {value:7.2f}" for key, value in self.rows[name].items()), flush=True)

    def _theirs(self) -> float:
        return sum(side.cpu_s() for side in self._brokers)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def link(source: Side, target: Side, aliases: tuple[str, str]) -> LinkSettings:
    ends = [
        {"alias": alias, "bootstrap": s.bootstrap} for alias, s in zip(aliases, (source, target), strict=True)
    ]
    return LinkSettings.model_validate(
        {
            "source": ends[0],
            "target": ends[1],
            "topics": ["switched-.*"],
            "offsets": "identical",
            "naming": "identity",
            "replication_factor": 1,
            "internal_replication_factor": 1,
        }
    )


@contextlib.asynccontextmanager
async def mirroring(settings: LinkSettings, count: int) -> AsyncIterator[None]:
    """Runs the link; the body begins when all partitions are level."""
    status, stop = LinkStatus(settings.name), asyncio.Event()
    task = asyncio.create_task(run_mirrors(settings, stop, CollectorRegistry(), status))
    try:
        while sum(_is_level(part) for part in status.to_json().get("partitions", {}).values()) < count:
            if task.done():
                raise SystemExit(f"the link has ended with {task.result()}")
            await asyncio.sleep(0.1)
        yield
    finally:
        stop.set()
        await task


def _is_level(part: dict[str, Any]) -> bool:
    return part["state"] == "copying" and 0 <= part["source_end"] <= part["end"]


async def measure(east: Side, west: Side, partitions: int, topics: int) -> dict[str, dict[str, float]]:
    steps = Steps((east, west))
    there, back = link(east, west, ("east", "west")), link(west, east, ("west", "east"))
    names = [f"switched-{number}" for number in range(topics)]
    each = partitions // topics
    async with ClusterClient(east.bootstrap) as here, ClusterClient(west.bootstrap) as other:
        await here.create_topics([NewTopic(name, each, 1) for name in names])
        for name in names:
            await asyncio.to_thread(
                fill, east.bootstrap, name, Data(count=_RECORDS * each, size=100, partitions=each)
            )
        with steps.step("first start"):
            async with mirroring(there, each * topics):
                pass
        with steps.step("restart"):
            async with mirroring(there, each * topics):
                pass
        with steps.step("promote"):
            mirrors = await find_mirrors(other, there)
            await promote(here, other, there, mirrors, print, timeout_s=300)
        with tempfile.TemporaryDirectory() as folder, steps.step("reverse"):
            found = await reversible(here, other, there, back.name)
            await reverse(here, other, found, back.name, Path(folder), print)
        with steps.step("failover"):
            await failover(other, here, back, await find_mirrors(here, back), print)
        tps = [TopicPartition(name, index) for name in names for index in range(each)]
        ends = await other.list_offsets(dict.fromkeys(tps, LATEST))
        assert sum(at.offset for at in ends.values()) >= _RECORDS * len(tps), "not all is there"
    return steps.rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "mirrors.json")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="isthmus-bench-mirrors-") as folder,
        contextlib.ExitStack() as stack,
    ):
        east, west = (stack.enter_context(isthmus(Path(folder) / name)) for name in ("east", "west"))
        rows = asyncio.run(measure(east, west, options.partitions, options.topics))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"partitions": options.partitions, "topics": options.topics, "steps": rows}
    options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
