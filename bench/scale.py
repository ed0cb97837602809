"""A link of thousands of partitions and groups beside MirrorMaker 2: how long until all is copied and all
groups are there, and what it takes of a processor when nothing happens.

    python -m bench.scale                                  # 5,000 partitions, 1,000 groups; some ten minutes
    python -m bench.scale --partitions 1000 --groups 100 --no-mm2

Three records in each partition; each group has positions in 60 of them. Seconds count from the start of the
process. Between two Apache Kafka brokers where they are found, else between two of ours.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from bench.brokers.limits import RowFailed
from bench.brokers.report import Row, given_up, write
from bench.brokers.sides import OURS, ROOT, compile_modules
from bench.links.sides import MM2, Copier, Ground, copying, ground, mm2_script
from protocol.client import LATEST, ClusterClient, Committed, NewTopic
from protocol.errors import ProtocolError
from protocol.types import TopicPartition

PREFIX = "scale-"
_PER_TOPIC = 20
_RECORDS = 3
_GROUP_TOPICS = 3
_BOUND_S = 900.0
_SETTLES_S = 30.0
_IDLE_S = 60.0
_GROUPS_LOOKED_AT = 25


def topics(partitions: int) -> list[str]:
    return [f"{PREFIX}{number}" for number in range(partitions // _PER_TOPIC)]


def group_positions(names: list[str], number: int) -> dict[TopicPartition, Committed]:
    """Of the group of this number: one record of each of its partitions is read."""
    mine = [names[(number * 7 + step) % len(names)] for step in range(_GROUP_TOPICS)]
    return {TopicPartition(name, index): Committed(1, 0) for name in mine for index in range(_PER_TOPIC)}


async def fill(between: Ground, names: list[str], groups: int) -> None:
    async with ClusterClient(between.source.bootstrap) as source:
        for start in range(0, len(names), 50):
            part = names[start : start + 50]
            await source.create_topics([NewTopic(name, _PER_TOPIC, 1, {}) for name in part])
        await asyncio.to_thread(_write, between.source.bootstrap, names)
        for number in range(groups):
            await source.commit(f"{PREFIX}{number}", group_positions(names, number))


def _write(bootstrap: str, names: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for name in names:
        for number in range(_PER_TOPIC * _RECORDS):
            producer.produce(name, b"%06d" % number, partition=number % _PER_TOPIC)
        producer.poll(0)
    if producer.flush(300):
        raise RowFailed("the source topics could not be filled within 300 s")


async def copied(client: ClusterClient, names: list[str]) -> bool:
    """Whether every partition has come."""
    spots = {TopicPartition(name, index): LATEST for name in names for index in range(_PER_TOPIC)}
    try:
        return all(end.offset >= _RECORDS for end in (await client.list_offsets(spots)).values())
    except ProtocolError:
        return False


async def synced(client: ClusterClient, copier: Copier, names: list[str], groups: int) -> bool:
    """Whether the groups that are looked at have all their positions."""
    for number in range(0, groups, max(groups // _GROUPS_LOOKED_AT, 1)):
        there = await client.committed(f"{PREFIX}{number}")
        wanted = group_positions(names, number)
        if any(TopicPartition(copier.at_target(tp.topic), tp.partition) not in there for tp in wanted):
            return False
    return True


async def turn(contender: str, between: Ground, names: list[str], groups: int) -> dict[str, float | None]:
    async with (
        ClusterClient(between.target.bootstrap) as client,
        copying(contender, between, f"{PREFIX}.*") as copier,
    ):
        until = copier.began + _BOUND_S
        there = [copier.at_target(name) for name in names]

        async def reached(what: str, seen: bool) -> bool:
            if not seen and time.monotonic() > until:
                raise RowFailed(f"{what}: not within {_BOUND_S:g} s")
            copier.cpu_s()  # raises when it has ended
            if not seen:
                await asyncio.sleep(0.5)
            return seen

        while not await reached("all partitions", await copied(client, there)):
            pass
        copied_s, copied_cpu_s = time.monotonic() - copier.began, copier.cpu_s()
        while not await reached("all groups", await synced(client, copier, names, groups)):
            pass
        groups_s = time.monotonic() - copier.began
        await asyncio.sleep(_SETTLES_S)
        before = copier.cpu_s()
        await asyncio.sleep(_IDLE_S)
        return {
            "copied_s": round(copied_s, 1),
            "copied_cpu_s": round(copied_cpu_s, 1),
            "groups_s": round(groups_s, 1),
            "idle_cpu_percent": round((copier.cpu_s() - before) / _IDLE_S * 100, 1),
            "resident_mb": round(copier.peak_mb()),
        }


@contextlib.contextmanager
def brokers(*, kafka: bool) -> Iterator[Ground]:
    compile_modules()
    with (
        tempfile.TemporaryDirectory(prefix="isthmus-bench-scale-") as folder,
        ground(Path(folder), kafka=kafka) as between,
    ):
        yield between


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=5000, help=f"a multiple of {_PER_TOPIC}")
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--no-mm2", action="store_true", help="ours alone")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "scale.json")
    options = parser.parse_args()
    kafka = mm2_script().is_file() and shutil.which("java") is not None
    names = topics(options.partitions)
    rows: list[Row] = []
    with brokers(kafka=kafka) as between:
        asyncio.run(fill(between, names, options.groups))
        for contender in (OURS, MM2) if kafka and not options.no_mm2 else (OURS,):
            try:
                row: Row = {"name": contender, **asyncio.run(turn(contender, between, names, options.groups))}
            except RowFailed as failure:
                row = given_up(contender, str(failure))
            rows.append(row)
            print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    write(options.json, {"partitions": options.partitions, "groups": options.groups}, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
