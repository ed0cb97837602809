"""What is left of the batches of a log once it is compacted (Kafka's `Cleaner.cleanInto`).

Takes batches in order from the log's start, gives back those to write: most pass as they are, some are
rebuilt with fewer records, and some go. Rules, all Kafka's: a key's newest record stays; a deletion marker
stays until the delete horizon that its batch got in an earlier round (KIP-534); records of aborted
transactions go at once; transaction markers a round after the last batch of their transaction, past their
horizon; the last batch of each active producer stays, if only as a header. Beyond Kafka's: the last batch of
every cleaned segment stays as a header, so a segment always reaches as far as those it replaces (see `swap`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from broker.log.cleaner.offset_map import OffsetMap
from broker.log.cleaner.record_scan import Scanned, scan
from broker.log.cleaner.rewrite import emptied, horizon, rebuilt
from broker.log.cleaner.transactions import CleanedTransactions
from broker.log.markers import Marker, read_marker
from broker.log.time_index import NO_TIMESTAMP
from broker.log.txn_index import AbortedTxn
from protocol.records import HEADER_SIZE, BatchHeader
from protocol.records.compression import decompress

Batch = tuple[BatchHeader, memoryview]


class Kept(NamedTuple):
    """A batch to write; `max_timestamp` is what indexes by time should say, -1 for nothing."""

    data: bytes | memoryview
    last_offset: int
    max_timestamp: int


class _Opened(NamedTuple):
    """A batch whose records are looked at one by one."""

    payload: bytes
    scanned: Scanned


@dataclass(slots=True)
class FilterCounts:
    records_read: int = 0
    records_kept: int = 0
    keyless: int = 0


class BatchFilter:
    def __init__(
        self,
        newest: OffsetMap,
        transactions: CleanedTransactions,
        producers: dict[int, tuple[int, int]],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        """`producers`: epoch and last data offset (or -1) of those that are active."""
        self._newest = newest
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self.aborted: list[AbortedTxn] = []
        """Entries for the new segment's aborted index; whoever writes it takes them out."""
        self.counts = FilterCounts()

    def clean(self, batches: Sequence[Batch], last_offset: int) -> Iterator[Kept]:
        """What to keep of some batches; the one that ends at `last_offset` is the last of its segment."""
        newest, counts = self._newest, self.counts
        opened: list[_Opened | None] = []
        hashes: list[int] = []
        checks: list[int] = []
        offsets: list[int] = []
        verdicts = [self._verdict(header, data) for header, data in batches]
        for (header, data), (gone, _) in zip(batches, verdicts, strict=True):
            counts.records_read += header.record_count
            if gone or header.is_control or header.base_offset > newest.latest_offset:
                opened.append(None)
                continue
            payload = decompress(header.codec, data[HEADER_SIZE:])
            scanned = scan(payload, header)
            opened.append(_Opened(payload, scanned))
            hashes += scanned.hashes
            checks += scanned.checks
            offsets += scanned.offsets
        newer = newest.newer(hashes, checks, offsets)
        at = 0
        for (header, data), (gone, undated), look in zip(batches, verdicts, opened, strict=True):
            kept = None
            if look is not None:
                count = len(look.scanned.offsets)
                kept = self._filtered(header, data, look, newer[at : at + count])
                at += count
            elif not gone:
                kept = self._whole(header, data, undated)
            if kept is not None:
                yield kept
            elif header.last_offset == last_offset or self._last_of_producer(header):
                yield Kept(emptied(header), header.last_offset, NO_TIMESTAMP)

    # --- one batch

    def _verdict(self, header: BatchHeader, data: memoryview) -> tuple[bool, bool]:
        """Whether all records of the batch go, and whether it is a marker that needs a delete horizon."""
        if not header.is_control:
            return self._transactions.data(
                header.producer_id, header.last_offset, header.is_transactional
            ), False
        marker: Marker | None = None
        if header.record_count:
            marker = read_marker(data, 0, header)
            if marker is None:
                return False, False  # a control record of another kind
        over, entry = self._transactions.marker(
            header.producer_id, header.last_offset, None if marker is None else marker.commit
        )
        if entry is not None:
            self.aborted.append(entry)
        due = horizon(header)
        return over and due is not None and due <= self._now_ms, over and due is None

    def _last_of_producer(self, header: BatchHeader) -> bool:
        epoch, last_offset = self._producers.get(header.producer_id, (-1, -1))
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == epoch

    def _whole(self, header: BatchHeader, data: memoryview, undated: bool) -> Kept | None:
        """A marker, or a batch that lies behind what the map knows."""
        if not header.record_count:
            return None
        self.counts.records_kept += header.record_count
        if not undated:
            return Kept(data, header.last_offset, header.max_timestamp)
        payload = decompress(header.codec, data[HEADER_SIZE:])
        starts = scan(payload, header).starts
        built, latest = rebuilt(header, payload, starts, range(header.record_count), self._horizon_ms)
        return Kept(built, header.last_offset, latest)

    def _filtered(
        self, header: BatchHeader, data: memoryview, look: _Opened, newer: npt.NDArray[np.bool_]
    ) -> Kept | None:
        scanned, count = look.scanned, header.record_count
        due = horizon(header)
        if header.last_offset > self._newest.latest_offset:
            newer &= np.array(scanned.offsets) <= self._newest.latest_offset
        tombstones = [number for number in scanned.tombstones if not newer[number]]
        going = self._keyless(scanned)
        if due is not None and due <= self._now_ms:
            going += [n for n in tombstones if scanned.offsets[n] <= self._newest.latest_offset]
            tombstones = []
        if going:
            newer[going] = True
        left = count - int(np.count_nonzero(newer))
        if not left:
            return None
        self.counts.records_kept += left
        new_horizon = self._horizon_ms if tombstones and due is None else None
        if left == count and new_horizon is None:
            return Kept(data, header.last_offset, header.max_timestamp)
        kept = np.flatnonzero(~newer).tolist()
        built, latest = rebuilt(header, look.payload, scanned.starts, kept, new_horizon)
        return Kept(built, header.last_offset, latest)

    def _keyless(self, scanned: Scanned) -> list[int]:
        """Records without a key, which a compacted log has no place for."""
        limit = self._newest.latest_offset
        found = [number for number in scanned.keyless if scanned.offsets[number] <= limit]
        self.counts.keyless += len(found)
        return found
