"""What a task makes of a split: Arrow batches of digests, and a note at the end.

Owns gathering digests of many batches into columns, with the expected position of each record; records in a
recorded gap are counted and left out, and so are those that a link with origin headers does not copy.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator

import numpy as np
import pyarrow as pa

from audit.digest import BatchDigests
from audit.errors import AuditError
from audit.lanes import Split
from audit.positions import Offsets, Positions
from audit.reading import read_split
from audit.source import BEHIND, Job

_ARROW = pa.schema(
    [
        ("lane", pa.int32()),
        ("side", pa.int32()),
        ("position", pa.int64()),
        ("offset", pa.int64()),
        ("digest_high", pa.int64()),
        ("digest_low", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.int64()),
        ("note", pa.string()),
    ]
)
_ROWS = 1 << 15
_NOTE_POSITION = -(1 << 62)


async def rows(job: Job, split: Split) -> AsyncGenerator[pa.RecordBatch, None]:
    """Data batches of about `_ROWS` rows, then the note."""
    began = time.monotonic()
    gathered = _Gathered(split)
    problem = ""
    try:
        async for digests in read_split(
            job.side(split.side),
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
            "records": 0 if split.behind else gathered.records,
            "gap_records": gathered.gap_records,
            "left_out": gathered.left_out,
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
        self.left_out = 0

    def add(self, digests: BatchDigests) -> None:
        self._parts.append(digests)
        self.rows += len(digests.offsets)

    def take(self) -> pa.RecordBatch:
        split = self._split
        offsets: Offsets = np.concatenate([np.frombuffer(part.offsets, np.int64) for part in self._parts])
        times = np.concatenate([np.frombuffer(part.timestamps, np.int64) for part in self._parts])
        digests = np.frombuffer(b"".join(part.digests for part in self._parts), np.int64).reshape(-1, 2)
        keys = np.zeros(len(offsets), np.int64)
        if split.compacted:
            keys = np.concatenate([np.frombuffer(part.keys, np.int64) for part in self._parts])
        ways = [way for part in self._parts for way in part.ways]
        self._parts.clear()
        self.rows = 0
        wanted = (offsets >= split.start) & (offsets < split.end)
        if split.place:
            others = np.array([self._others(way) for way in ways], bool)
            others &= wanted & ~self._positions.on_record(offsets, split.side)
            self.left_out += int(np.count_nonzero(others))
            wanted &= ~others
        gaps = wanted & self._positions.in_gap(offsets)
        self.gap_records += int(np.count_nonzero(gaps))
        keep = wanted & ~gaps
        if not keep.all():
            offsets, times, digests, keys = offsets[keep], times[keep], digests[keep], keys[keep]
        self.records += len(offsets)
        positions = self._positions.expected(offsets) if split.side == 0 else offsets
        count = len(offsets)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(count, split.lane, np.int32)),
                pa.array(np.full(count, split.side + BEHIND * split.behind, np.int32)),
                pa.array(positions),
                pa.array(offsets),
                pa.array(np.ascontiguousarray(digests[:, 0])),
                pa.array(np.ascontiguousarray(digests[:, 1])),
                pa.array(times),
                pa.array(keys),
                pa.nulls(count, pa.string()),
            ],
            schema=_ARROW,
        )

    def _others(self, way: bytes) -> bool:
        """Whether a record that has been there is not the link's to copy, or no copy of the link's."""
        hops = way.split(b",")
        place = self._split.place.encode()
        return place in hops if self._split.side == 0 else hops[-1] != place


def _note(split: Split, note: dict[str, object]) -> pa.RecordBatch:
    values = [split.lane, split.side, _NOTE_POSITION - split.number, 0, 0, 0, 0, 0, json.dumps(note)]
    return pa.RecordBatch.from_arrays(
        [pa.array([value], type=kind) for value, kind in zip(values, _ARROW.types, strict=True)],
        schema=_ARROW,
    )
