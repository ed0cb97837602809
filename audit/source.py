"""The Spark data source: splits become Arrow batches of digests.

Owns the shape of the rows and the tasks. A data row is one record: lane, side, expected position at the
target, own offset, digest (two 64-bit halves), timestamp, and on compacted topics its key. Each split ends
with one row whose `note` is a JSON object: how many records it gave and what went wrong. A split that cannot
be read says so in its note instead of failing the job, because the other partitions can still be compared.

Spark imports this module in several short-lived processes, so it imports little; `rows` does the work.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from audit.lanes import Split, bundle

if TYPE_CHECKING:
    import pyarrow as pa

    from audit.settings import BackupSide, ClusterSide

NAME = "isthmus_digests"
BEHIND = 2
"""Added to the side of records behind the cut, which are not compared: there may be later ones of a key."""
SCHEMA = (
    "lane int, side int, position long, offset long, digest_high long, digest_low long, "
    "timestamp long, key long, note string"
)


@dataclass(frozen=True, slots=True)
class Job:
    """Everything the tasks need; travels to them by pickle."""

    sides: bytes
    """Source and target side, pickled for themselves: only tasks need what they are made of."""
    splits: tuple[Split, ...]
    topic_ids: dict[tuple[int, str], str]
    ignore_headers: tuple[str, ...]
    stall_s: float
    tasks: int
    """At most so many tasks."""

    def side(self, number: int) -> ClusterSide | BackupSide:
        sides: tuple[ClusterSide | BackupSide, ClusterSide | BackupSide] = pickle.loads(self.sides)  # noqa: S301
        return sides[number]


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
        from audit.rows import rows

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
