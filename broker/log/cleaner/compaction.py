"""Compacting one partition: a map of the newest keys in its dirty part, then all of it written anew by it.

Reads segments that nobody changes any more and writes `.cleaned` files beside them; putting those in place
is the broker's part (`swap`). Runs in the cleaner's process, waits for disks, counts bytes.
(Kafka's `Cleaner.doClean`.)
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from broker.log import scan
from broker.log.cleaner import plan
from broker.log.cleaner.batch_filter import Batch, BatchFilter, Kept
from broker.log.cleaner.job import Done, Event, GroupCleaned, Job, Progress, SegmentFile
from broker.log.cleaner.offset_map import OffsetMap
from broker.log.cleaner.record_scan import scan as scan_records
from broker.log.cleaner.swap import CLEANED
from broker.log.cleaner.throttle import Throttle
from broker.log.cleaner.transactions import CleanedTransactions
from broker.log.config import LogConfig
from broker.log.errors import CorruptLog
from broker.log.files import OpenFile, remove_files, sync_file
from broker.log.markers import read_marker
from broker.log.segment import Segment
from broker.log.segment_view import MAX_RELATIVE_OFFSET
from broker.log.txn_index import AbortedTxn, append_aborted, read_aborted
from protocol.records import HEADER_SIZE, BatchHeader
from protocol.records.compression import decompress

_WINDOW: Final = 1 << 20
_SYNC_EVERY: Final = 32 << 20
_REPORT_EVERY_S: Final = 0.5


class Compaction:
    def __init__(self, job: Job, report: Callable[[Event], None], throttle: Throttle) -> None:
        self._job = job
        self._report = report
        self._throttle = throttle
        self._read = self._written = 0
        self._reported = 0.0
        self._map = OffsetMap(job.map_capacity)
        self._config = LogConfig(
            segment_bytes=job.segment_bytes,
            segment_index_bytes=job.segment_index_bytes,
            index_interval_bytes=job.index_interval_bytes,
        )

    def run(self) -> None:
        """Ends with a `Done`. Raises OSError, `CorruptLog`, `DecodeError`."""
        job, began = self._job, time.monotonic()
        _remove_leftovers(job.directory)
        self._build_map()
        end = self._map.latest_offset + 1
        kept = BatchFilter(
            self._map,
            CleanedTransactions(self._aborted(job.segments[0].base_offset)),
            job.producers,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
        )
        segments = [segment for segment in job.segments if segment.base_offset < end]
        for group in plan.groups(
            segments,
            max_bytes=job.segment_bytes,
            max_index_bytes=job.segment_index_bytes,
            index_interval=job.index_interval_bytes,
        ):
            self._clean(group, kept)
        counts = kept.counts
        self._report(Done(
            end=end, read=self._read, written=self._written, records_read=counts.records_read,
            records_kept=counts.records_kept, keyless=counts.keyless, seconds=time.monotonic() - began,
        ))  # fmt: skip

    # --- the map

    def _build_map(self) -> None:
        job, newest = self._job, self._map
        transactions = CleanedTransactions(self._aborted(job.first_dirty))
        for segment in job.segments:
            if segment.next_base <= job.first_dirty:
                continue
            for header, data in self._batches(segment):
                if header.last_offset < job.first_dirty:
                    continue
                if not self._note(header, data, transactions):
                    return
                newest.latest_offset = header.last_offset
            newest.latest_offset = max(newest.latest_offset, segment.next_base - 1)

    def _note(self, header: BatchHeader, data: memoryview, transactions: CleanedTransactions) -> bool:
        """Take a batch into the map; False when it is full."""
        if header.is_control:
            marker = read_marker(data, 0, header)
            commit = None if marker is None else marker.commit
            transactions.marker(header.producer_id, header.last_offset, commit)
            return True
        if transactions.data(header.producer_id, header.last_offset, header.is_transactional):
            return True
        newest = self._map
        if newest.latest_offset >= 0 and newest.full:
            return False
        found = scan_records(decompress(header.codec, data[HEADER_SIZE:]), header)
        hashes, checks, offsets = found.hashes, found.checks, found.offsets
        if found.keyless:
            without = set(found.keyless)
            keyed = [number for number in range(len(offsets)) if number not in without]
            hashes, checks, offsets = (
                [values[number] for number in keyed] for values in (hashes, checks, offsets)
            )
        newest.put(hashes, checks, offsets)
        return True

    def _aborted(self, start: int) -> Iterator[AbortedTxn]:
        for base in self._job.aborted_in:
            for txn in read_aborted(f"{self._job.directory}/{base:020d}.txnindex"):
                if txn.last_offset >= start:
                    yield txn

    # --- the new segments

    def _clean(self, group: Sequence[SegmentFile], kept: BatchFilter) -> None:
        job = self._job
        new = Segment.create(job.directory, group[0].base_offset, self._config, job.now_ms, suffix=CLEANED)
        try:
            self._write(new, group, kept)
        except OSError:
            # What there was room for would take it from those who append, and nobody else removes it.
            remove_files([new.path(kind) for kind in ("txnindex", "timeindex", "index", "log")])
            raise
        finally:
            new.release()

    def _write(self, new: Segment, group: Sequence[SegmentFile], kept: BatchFilter) -> None:
        job = self._job
        writer = _Writer(new)
        for windows, last_offset in self._windows(group):
            for each in kept.clean(windows, last_offset):
                writer.add(each)
            self._account(written=writer.flush())
        for txn in kept.aborted:
            append_aborted(new.path("txnindex"), txn)
        kept.aborted.clear()
        new.save_indexes(closing=True)
        new.file.sync()
        for kind in ("index", "timeindex", "txnindex"):
            sync_file(new.path(kind))
        original = os.stat(f"{job.directory}/{group[-1].base_offset:020d}.log")
        os.utime(new.path("log"), ns=(original.st_atime_ns, original.st_mtime_ns))
        self._report(GroupCleaned(
            bases=tuple(segment.base_offset for segment in group), size=new.size,
            largest_timestamp=new.max_timestamp, largest_timestamp_offset=new.max_timestamp_offset,
        ))  # fmt: skip

    def _windows(self, group: Sequence[SegmentFile]) -> Iterator[tuple[list[Batch], int]]:
        """The batches of a group in parts of about a megabyte, and the last offset of the group.

        The last offset is only known, and only given, with the part that has it; -1 before.
        """
        window: list[Batch] = []
        size = 0
        for segment in group:
            for batch in self._batches(segment):
                if size >= _WINDOW:
                    yield window, -1
                    window, size = [], 0
                window.append(batch)
                size += batch[0].size
        if window:
            yield window, window[-1][0].last_offset

    def _batches(self, segment: SegmentFile) -> Iterator[Batch]:
        """All batches of a segment, checked. Raises `CorruptLog`."""
        path = f"{self._job.directory}/{segment.base_offset:020d}.log"
        file = OpenFile(path)
        highest = min(segment.next_base - 1, segment.base_offset + MAX_RELATIVE_OFFSET)
        end = 0
        for position, header, data in scan.sound_batches(file, 0, segment.size, segment.base_offset, highest):
            end = position + header.size
            self._account(read=header.size)
            yield header, data
        if end != segment.size:
            raise CorruptLog(f"{path}: no sound batch at byte {end}")

    def _account(self, *, read: int = 0, written: int = 0) -> None:
        self._read += read
        self._written += written
        self._throttle.spend(read + written)
        now = time.monotonic()
        if now - self._reported > _REPORT_EVERY_S:
            self._reported = now
            filled = len(self._map) / self._map.capacity
            self._report(Progress(read=self._read, written=self._written, map_filled=filled))


class _Writer:
    """Puts batches into the new segment, some at once, and onto the disk now and then.

    Left to the end, that would be one long wait for everybody who uses this disk.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._waiting: list[Kept] = []
        self._unsynced = 0

    def add(self, batch: Kept) -> None:
        self._waiting.append(batch)

    def flush(self) -> int:
        """Returns the bytes written."""
        batches, self._waiting = self._waiting, []
        if not batches:
            return 0
        data = memoryview(b"".join(each.data for each in batches))
        self._segment.write(data)
        for each in batches:
            self._segment.note(each.last_offset, each.max_timestamp, len(each.data))
        self._unsynced += len(data)
        if self._unsynced > _SYNC_EVERY:
            self._segment.file.sync()
            self._unsynced = 0
        return len(data)


def _remove_leftovers(directory: str) -> None:
    """Of a cleaning that did not come to its end."""
    remove_files([f"{directory}/{name}" for name in os.listdir(directory) if name.endswith(CLEANED)])
