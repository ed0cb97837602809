"""A partition's log in memory, with Kafka's rules for leader epochs and what it knows of producers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field

from protocol.client.mirror_calls import EpochEnd
from protocol.records import read_header
from protocol.records.header import BatchHeader
from protocol.records.reading import read_records

_REMEMBERED = 5
COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"


@dataclass
class Known:
    """What a partition knows of a producer id."""

    epoch: int
    recent: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """(sequence, records, base offset)"""


@dataclass
class Log:
    batches: list[tuple[BatchHeader, bytes]] = field(default_factory=list)
    end: int = 0
    producers: dict[int, Known] = field(default_factory=dict)
    node: int = 1
    """Who leads."""
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """Leader epochs and where they began."""
    aside: Log | None = None
    """What the other broker has, where that is not the same."""

    @property
    def epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def copied(self) -> Log:
        """What this broker has, with records of a transaction that is open and may end without it."""
        return Log(list(self.batches), self.end, deepcopy(self.producers), self.node, list(self.epochs))

    def forget_lost(self) -> None:
        """What was known of producers by what is lost."""
        for producer_id, known in list(self.producers.items()):
            left = [one for one in known.recent if one[2] < self.end]
            if not left:
                del self.producers[producer_id]
            known.recent.clear()
            known.recent.extend(left)

    def cut(self, end: int) -> None:
        self.end = end
        self.batches = [row for row in self.batches if row[0].base_offset < end]
        self.epochs = [row for row in self.epochs if row[1] < end]

    def elect(self, epoch: int) -> None:
        """The other broker."""
        self.node = 3 - self.node
        self.begin(epoch)

    def begin(self, epoch: int) -> None:
        """A leader epoch."""
        if self.epochs and self.epochs[-1][1] == self.end:
            self.epochs.pop()
        self.epochs.append((epoch, self.end))

    def epoch_end(self, epoch: int) -> EpochEnd:
        """As LeaderEpochFileCache.endOffsetFor."""
        if epoch == self.epoch:
            return EpochEnd(epoch, self.end)
        later = [start for known, start in self.epochs if known > epoch]
        before = [known for known, _ in self.epochs if known <= epoch]
        return EpochEnd(before[-1] if before else epoch, later[0]) if later else EpochEnd(-1, -1)

    def open(self) -> dict[int, int]:
        """Producer ids of transactions without an end here, and where they begin."""
        begun: dict[int, int] = {}
        for header, _ in self.batches:
            if header.is_control:
                begun.pop(header.producer_id, None)
            elif header.is_transactional:
                begun.setdefault(header.producer_id, header.base_offset)
        return begun

    @property
    def stable(self) -> int:
        """Where the first of them begins, else the end."""
        return min(self.open().values(), default=self.end)

    def aborted(self, offset: int) -> Iterator[tuple[int, int]]:
        """Producer ids and first offsets of transactions whose aborts stand behind an offset."""
        begun: dict[int, int] = {}
        for header, batch in self.batches:
            if not header.is_control and header.is_transactional:
                begun.setdefault(header.producer_id, header.base_offset)
            elif header.is_control:
                first = begun.pop(header.producer_id, None)
                (marker,) = read_records(memoryview(batch), 0, header)
                if first is not None and marker.key == ABORT and header.base_offset >= offset:
                    yield header.producer_id, first

    def put(self, batch: bytes) -> int:
        base = self.end
        placed = base.to_bytes(8, "big") + batch[8:12] + self.epoch.to_bytes(4, "big") + batch[16:]
        header = read_header(placed)
        self.batches.append((header, placed))
        self.end = header.next_offset
        return base
