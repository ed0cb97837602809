"""The Spark data source: splits become Arrow batches of digests.

Owns the shape of the rows and what a task does. A data row is one record: lane, side, expected position at
the target, own offset, digest (two 64-bit halves) and timestamp. Each split ends with one row whose `note` is
a JSON object: how many records it gave, where reading ended, and what went wrong. A split that cannot be read
says so in its note instead of failing the job, because the other partitions can still be compared.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from audit.digest import BatchDigests
from audit.errors import AuditError
from audit.lanes import Split, bundle
from audit.positions import Offsets, Positions
from audit.reading import read_split
from audit.settings import BackupSide, ClusterSide

NAME = "isthmus_digests"
SCHEMA = (
    "lane int, side int, position long, offset long, digest_high long, digest_low long, "
    "timestamp long, note string"
)
_ARROW = pa.schema(
    [
        ("lane", pa.int32()),
        ("side", pa.int32()),
        ("position", pa.int64()),
        ("offset", pa.int64()),
        ("digest_high", pa.int64()),
        ("digest_low", pa.int64()),
        ("timestamp", pa.int64()),
        ("note", pa.string()),
    ]
)
_ROWS = 1 << 15
_NOTE_POSITION = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Job:
    """Everything the tasks need; travels to them by pickle."""

    sides: tuple[ClusterSide | BackupSide, ClusterSide | BackupSide]
    splits: tuple[Split, ...]
    topic_ids: dict[tuple[int, str], str]
    ignore_headers: tuple[str, ...]
    stall_s: float
    tasks: int
    """At most so many tasks."""


class _Bundle(InputPartition):
    def __init__(self, splits: tuple[Split, ...]) -> None:
        self.splits = splits


def data_source(job: Job) -> type[DataSource]:
    """A data source class that carries its job; register it, then load `NAME`."""

    class DigestSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> str:
            return SCHEMA

        def reader(self, schema: Any) -> DataSourceReader:
            return DigestReader(job)

    return DigestSource


class DigestReader(DataSourceReader):
    """One task per bundle of splits."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def partitions(self) -> list[InputPartition]:
        return [_Bundle(splits) for splits in bundle(self._job.splits, self._job.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Bundle)
        loop = asyncio.new_event_loop()
        try:
            for split in partition.splits:
                batches = rows(self._job, split)
                try:
                    while (batch := loop.run_until_complete(anext(batches, None))) is not None:
                        yield batch
                finally:
                    loop.run_until_complete(batches.aclose())
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


async def rows(job: Job, split: Split) -> AsyncGenerator[pa.RecordBatch, None]:
    """Data batches of about `_ROWS` rows, then the note."""
    began = time.monotonic()
    gathered = _Gathered(split)
    problem = ""
    try:
        async for digests in read_split(
            job.sides[split.side],
            split,
            stall_s=job.stall_s,
            ignore_headers=tuple(name.encode() for name in job.ignore_headers),
            topic_id=job.topic_ids.get((split.side, split.tp.topic), ""),
        ):
            gathered.add(digests)
            if gathered.rows >= _ROWS:
                yield gathered.take()
    except AuditError as error:
        problem = str(error)
    if gathered.rows:
        yield gathered.take()
    yield _note(
        split,
        {
            "split": split.number,
            "lane": split.lane,
            "side": split.side,
            "records": gathered.records,
            "gap_records": gathered.gap_records,
            "seconds": round(time.monotonic() - began, 3),
            "problem": problem,
        },
    )


class _Gathered:
    """Digests of several batches on their way to one Arrow batch."""

    def __init__(self, split: Split) -> None:
        self._split = split
        self._positions = Positions(split.runs, split.gaps)
        self._parts: list[BatchDigests] = []
        self.rows = 0
        self.records = 0
        self.gap_records = 0

    def add(self, digests: BatchDigests) -> None:
        self._parts.append(digests)
        self.rows += len(digests.offsets)

    def take(self) -> pa.RecordBatch:
        split = self._split
        offsets: Offsets = np.concatenate([np.frombuffer(part.offsets, np.int64) for part in self._parts])
        times = np.concatenate([np.frombuffer(part.timestamps, np.int64) for part in self._parts])
        digests = np.frombuffer(b"".join(part.digests for part in self._parts), np.int64).reshape(-1, 2)
        self._parts.clear()
        self.rows = 0
        wanted = (offsets >= split.start) & (offsets < split.end)
        gaps = wanted & self._positions.in_gap(offsets)
        self.gap_records += int(np.count_nonzero(gaps))
        keep = wanted & ~gaps
        if not keep.all():
            offsets, times, digests = offsets[keep], times[keep], digests[keep]
        self.records += len(offsets)
        positions = self._positions.expected(offsets) if split.side == 0 else offsets
        count = len(offsets)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(count, split.lane, np.int32)),
                pa.array(np.full(count, split.side, np.int32)),
                pa.array(positions),
                pa.array(offsets),
                pa.array(np.ascontiguousarray(digests[:, 0])),
                pa.array(np.ascontiguousarray(digests[:, 1])),
                pa.array(times),
                pa.nulls(count, pa.string()),
            ],
            schema=_ARROW,
        )


def _note(split: Split, note: dict[str, object]) -> pa.RecordBatch:
    values = [split.lane, split.side, _NOTE_POSITION - split.number, 0, 0, 0, 0, json.dumps(note)]
    return pa.RecordBatch.from_arrays(
        [pa.array([value], type=kind) for value, kind in zip(values, _ARROW.types, strict=True)],
        schema=_ARROW,
    )
