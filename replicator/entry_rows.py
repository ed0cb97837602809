"""Progress of one partition as rows of the progress topic.

Owns their keys and values. A partition's record holds its ledger and the producer that writes it; runs of the
offset map that will not change any more are moved out into slices with keys of their own, so that what is
written each half second stays small however long the history is. It must not know where rows are kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from protocol.types import TopicPartition
from replicator.open_transactions import Row
from transfer.epochs import Epochs
from transfer.ledger import Copied, PartitionLedger, ProducerState
from transfer.offset_map import OffsetMap

RUNS_PER_SLICE = 4096


@dataclass(slots=True)
class Entry:
    """What is stored of one partition."""

    ledger: PartitionLedger
    producer: ProducerState | None = None
    epoch: int = -1
    """Leader epoch of the last copied batch at the source (KIP-320)."""
    sealed: int = 0
    """Slices of runs stored apart."""
    epochs: Epochs = field(default_factory=Epochs)
    """Where this one and those before it began."""
    at_target: Epochs = field(default_factory=Epochs)
    """The same of the target, by its offsets: leader epochs in which it was written, at least."""
    once: bool = False
    """Stored in the transactions of the data: what stands behind the end at the target is not the link's."""

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.ledger.source.topic, self.ledger.source.partition)

    def reached(self, copied: Copied, position: int) -> None:
        """A write from `position` on is booked."""
        self.epoch = copied.epoch
        self.epochs.reached(copied.epoch, position)
        if copied.runs:
            first = min(run.target for run in copied.runs)
            self.at_target.cut(first + 1)  # what is known behind that is of something that was lost there
            self.at_target.reached(copied.target_epoch, first)

    def led_by(self, epoch: int) -> None:
        """A leader of this epoch of the target has all that was written."""
        if epoch > self.at_target.last:
            self.at_target.reached(epoch, self.ledger.runs.target_end)

    def in_doubt(self, position: int, epoch: int) -> None:
        """What stands there from `position` on may be of epochs up to this one of its leader."""
        self.at_target.cut(position)
        self.at_target.reached(epoch, position)

    def goes_back(self) -> None:
        """The ledger ends earlier now."""
        self.epochs.cut(self.ledger.next_source_offset)
        self.epoch = self.epochs.last
        self.at_target.cut(self.ledger.runs.target_end)


def rows_of(entry: Entry, epoch: int = 0) -> tuple[list[Row], int]:
    """The rows to write for an entry (slices that are full now, then its record), and how many slices it has
    then. The last run stays out of slices, because it may still grow. `epoch` is its owner's."""
    runs = entry.ledger.runs
    entry.sealed, runs.shortest = min(entry.sealed, slices_kept(runs)), sys.maxsize
    sealed = max(len(runs) - 1, 0) // RUNS_PER_SLICE
    rows: list[Row] = []
    for index in range(min(entry.sealed, sealed), sealed):
        part = runs.part(index * RUNS_PER_SLICE, (index + 1) * RUNS_PER_SLICE)
        rows.append((_slice_key(entry.ledger, index), part.encode()))
    rows.append((head_key(entry.tp), _head(entry, sealed, epoch)))
    return rows, sealed


def slices_kept(runs: OffsetMap) -> int:
    """How many full slices have stayed as they were since rows were made last: what a side lost is cut off,
    and what comes then is another history."""
    return max(runs.shortest - 1, 0) // RUNS_PER_SLICE


def tail_rows_of(entry: Entry, epoch: int = 0) -> tuple[list[Row], int, OffsetMap]:
    """As `rows_of`, of an entry whose runs are only those behind its sealed slices; also the runs that are
    left once those in full slices are cut off."""
    runs, sealed = entry.ledger.runs, entry.sealed
    rows: list[Row] = []
    while len(runs) > RUNS_PER_SLICE:
        rows.append((_slice_key(entry.ledger, sealed), runs.part(0, RUNS_PER_SLICE).encode()))
        runs = runs.part(RUNS_PER_SLICE)
        sealed += 1
    rows.append((head_key(entry.tp), _head_of(entry, replace(entry.ledger, runs=runs), sealed, epoch)))
    return rows, sealed, runs


def head_key(tp: TopicPartition) -> bytes:
    """Of a partition's record."""
    return f"partition/{tp.topic}/{tp.partition}".encode()


def _head(entry: Entry, sealed: int, epoch: int = 0) -> bytes:
    runs = entry.ledger.runs.part(sealed * RUNS_PER_SLICE)
    return _head_of(entry, replace(entry.ledger, runs=runs), sealed, epoch)


def _head_of(entry: Entry, ledger: PartitionLedger, sealed: int, epoch: int) -> bytes:
    value = {
        "ledger": ledger.to_json(),
        "producer": list(entry.producer) if entry.producer else None,
        "epoch": entry.epoch,
        "epochs": entry.epochs.before(ledger.next_source_offset).to_json(),
        "target_epochs": entry.at_target.before(ledger.runs.target_end + 1).to_json(),
        "sealed": sealed,
        "once": entry.once,
        "by": epoch,  # stays the last key: see `epoch_of`
    }
    return json.dumps(value, separators=(",", ":")).encode()


def epoch_of(head: bytes) -> int | None:
    """Epoch of the worker that wrote it, without reading all of it; None from versions that had none."""
    _, mark, rest = head[-24:].rpartition(b'"by":')
    return int(rest.rstrip(b"}")) if mark else None


def former_row_of(entry: Entry) -> Row:
    """Where an entry stands in its topic of the target, for when that is its topic again."""
    sealed = min(entry.sealed, slices_kept(entry.ledger.runs))
    return former_key(entry.tp, entry.ledger.target.topic), _head(entry, sealed)


def former_key(tp: TopicPartition, target_topic: str) -> bytes:
    """Of where a partition stood in a topic of the target."""
    return f"former/{tp.topic}/{tp.partition}/{target_topic}".encode()


def _slice_key(ledger: PartitionLedger, index: int) -> bytes:
    source, target = ledger.source, ledger.target
    lineage = f"{source.topic_id}/{target.topic_id}"
    return f"runs/{source.topic}/{source.partition}/{lineage}/{index}".encode()


def read_entry(value: bytes, parts: Mapping[bytes, bytes]) -> Entry:
    """A partition's record and its slices, which are in `parts`. Raises LedgerError, KeyError, TypeError and
    ValueError when it is damaged, or a slice is missing."""
    data = json.loads(value)
    ledger = PartitionLedger.from_json(data["ledger"])
    producer = data["producer"]
    sealed = int(data["sealed"])
    if sealed:
        whole = OffsetMap.decode(parts[_slice_key(ledger, 0)])
        for index in range(1, sealed):
            whole.extend(OffsetMap.decode(parts[_slice_key(ledger, index)]))
        whole.extend(ledger.runs)
        ledger.runs = whole
    return Entry(
        ledger,
        ProducerState(int(producer[0]), int(producer[1]), int(producer[2])) if producer else None,
        int(data["epoch"]),
        sealed,
        Epochs.from_json(data.get("epochs", ())),
        Epochs.from_json(data.get("target_epochs", ())),
        bool(data.get("once", False)),
    )
