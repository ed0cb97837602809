"""The ledger: what a link, a backup or a restore has moved of one partition, in one format for all.

Owns lineage, offset map, counts, digest and gaps, and their JSON form. Link progress, backup manifests and
the audit read this and nothing else. Knows nothing about where it is stored.

A lineage names data for ever: a topic that is deleted and created again has another topic id and so another
lineage, whatever its name. A gap is never silent (DESIGN §4, I7): it stays as long as the ledger.
"""

from __future__ import annotations

import base64
import builtins
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transfer.digest import extend_digest
from transfer.offset_map import OffsetMap, Run

_VERSION = 1


class LedgerError(ValueError):
    """A stored ledger cannot be read."""


class Lineage(NamedTuple):
    """Where data lives: cluster id, topic id (Kafka's 22-character text), topic name, partition.

    An object store uses its own name as cluster id and an empty topic id.
    """

    cluster_id: str
    topic_id: str
    topic: str
    partition: int


class Gap(NamedTuple):
    """Source offsets `start ≤ offset < end` that could not be copied, why, and when it was found (ms)."""

    start: int
    end: int
    reason: str
    at_ms: int = 0


class ProducerState(NamedTuple):
    """The idempotent producer that writes a partition, and the sequence number it uses next (KIP-98)."""

    producer_id: int
    epoch: int
    next_sequence: int


class Copied(NamedTuple):
    """What one acknowledged write adds to a ledger."""

    runs: tuple[Run, ...]
    next_source_offset: int
    records: int
    bytes: int
    crcs: tuple[int, ...]
    """CRC fields of the source batches, in order."""
    producer: ProducerState | None = None
    """Where a Kafka target's producer stands behind this write; other targets have none."""
    epoch: int = -1
    """Leader epoch of the last source batch before `next_source_offset`, if known (KIP-320)."""
    last_timestamp: int = -1
    """Greatest record time (ms) of the last batch with data."""


@dataclass(slots=True)
class PartitionLedger:
    """Everything moved of one partition so far."""

    source: Lineage
    target: Lineage
    runs: OffsetMap = field(default_factory=OffsetMap)
    gaps: list[Gap] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    """Bytes of the source's batches as stored there (compressed, with headers)."""
    batches: int = 0
    digest: int = 0
    """CRC-32C over the CRC fields of all copied source batches, in order."""

    @property
    def next_source_offset(self) -> int:
        """Where copying continues."""
        return self.runs.source_end

    def add(self, copied: Copied) -> None:
        """Books an acknowledged write. Raises ValueError when it is not behind everything booked before."""
        for run in copied.runs:
            self.runs.append(run)
        self.runs.cover_to(copied.next_source_offset)
        self.records += copied.records
        self.bytes += copied.bytes
        self.batches += len(copied.crcs)
        self.digest = extend_digest(self.digest, copied.crcs)

    def add_gap(self, gap: Gap) -> None:
        """Books a gap; copying continues behind it. Adjacent gaps with the same reason become one."""
        if self.gaps and self.gaps[-1].end == gap.start and self.gaps[-1].reason == gap.reason:
            last = self.gaps.pop()
            gap = Gap(last.start, gap.end, gap.reason, last.at_ms)
        self.gaps.append(gap)
        self.runs.cover_to(gap.end)

    def rewind(self, source_offset: int, reason: str, at_ms: int) -> None:
        """The source lost or replaced what it had from `source_offset` on: what was copied of it stays at the
        target, is booked as a gap, and copying goes back to there."""
        self.gaps.append(Gap(source_offset, self.next_source_offset, reason, at_ms))
        self.runs.truncate_source(source_offset)

    @property
    def missing(self) -> int:
        """Source offsets inside gaps (an upper bound of lost records: markers count too)."""
        return sum(max(gap.end - gap.start, 0) for gap in self.gaps)

    def to_json(self) -> dict[str, Any]:
        """A JSON object; runs are base64 of `OffsetMap.encode`."""
        return {
            "version": _VERSION,
            "source": list(self.source),
            "target": list(self.target),
            "runs": base64.b64encode(self.runs.encode()).decode("ascii"),
            "gaps": [list(gap) for gap in self.gaps],
            "records": self.records,
            "bytes": self.bytes,
            "batches": self.batches,
            "digest": self.digest,
        }

    @classmethod
    def from_json(cls, data: Any) -> PartitionLedger:
        """Reads `to_json`. Raises LedgerError when a field is missing, damaged or newer than this code."""
        try:
            if data["version"] != _VERSION:
                raise LedgerError(
                    f"ledger version {data['version']} is not known (this code writes {_VERSION})"
                )
            return cls(
                source=_lineage(data["source"]),
                target=_lineage(data["target"]),
                runs=OffsetMap.decode(base64.b64decode(data["runs"], validate=True)),
                gaps=[_gap(gap) for gap in data["gaps"]],
                records=int(data["records"]),
                bytes=int(data["bytes"]),
                batches=int(data["batches"]),
                digest=int(data["digest"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, LedgerError):
                raise
            raise LedgerError(f"damaged ledger: {error!r}") from error

    def encode(self) -> builtins.bytes:
        """Compact JSON bytes."""
        return json.dumps(self.to_json(), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: builtins.bytes) -> PartitionLedger:
        """Reads `encode`. Raises LedgerError."""
        try:
            return cls.from_json(json.loads(data))
        except json.JSONDecodeError as error:
            raise LedgerError(f"damaged ledger: {error}") from error


def _lineage(fields: Iterable[Any]) -> Lineage:
    cluster_id, topic_id, topic, partition = fields
    return Lineage(str(cluster_id), str(topic_id), str(topic), int(partition))


def _gap(fields: Iterable[Any]) -> Gap:
    start, end, reason, at_ms = fields
    return Gap(int(start), int(end), str(reason), int(at_ms))
