"""The append of anything: several batches, copies, markers, batches that are refused, segments that are full.

Owns the order of its steps (checks, producers, offsets, bytes, what remembers them), so that a refused append
leaves no trace, and when the log goes on in a new segment. What each check is about is in `incoming`,
`producer_gate` and `mirrored`.
"""

import errno
import logging
from typing import NamedTuple

from broker.clock import Clock
from broker.log import snapshots
from broker.log.config import LogConfig
from broker.log.errors import AppendRefused
from broker.log.incoming import Batches, Origin, check_batches, check_copies, copy_runs, read_batches
from broker.log.leader_epochs import LeaderEpochs
from broker.log.mirrored import read_only
from broker.log.ordinary_append import OrdinaryAppend
from broker.log.producer_gate import aborted_by, check_producers, note_producer
from broker.log.producer_state import ProducerStates, SeenBatch
from broker.log.recompression import recompressed
from broker.log.segment import Segment
from broker.log.segment_list import SegmentList
from broker.log.txn_index import AbortedTxn, indexed
from protocol.errors import ErrorCode
from protocol.records import assign_offsets, set_log_append_time
from protocol.types import Buffer

log = logging.getLogger("isthmus.broker.log")


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic stamps records itself."""
    log_start_offset: int
    duplicate: bool = False
    """A retry of what was stored before; the offsets are those of then."""


class FullAppend(OrdinaryAppend):
    __slots__ = ("clock",)

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        clock: Clock,
        segments: SegmentList,
        producers: ProducerStates,
        epochs: LeaderEpochs,
    ) -> None:
        super().__init__(directory, config, segments, producers, epochs)
        self.clock = clock

    def store(self, batches: Buffer, leader_epoch: int, origin: Origin) -> AppendResult:
        """Put batches into the page cache at the end of the log: `Log.append` without the disk.

        Raises `AppendRefused`, and then the log is as before (copies: as of the last batch that fitted).
        """
        view = batches if type(batches) is memoryview else memoryview(batches)
        now_ms = self.clock.now_ms()
        if origin is Origin.CLIENT:
            placed = self.append_ordinary(view, leader_epoch, now_ms)
            if placed is not None:
                return AppendResult(placed[0], placed[1] - 1, -1, self.start_offset)
            if self._config.is_mirror:
                raise read_only(self._where, self._config)
        found = read_batches(self._where, view, self._rules, origin)
        if origin is Origin.REPLICATION:
            return self._append_copies(view, found, now_ms)
        check_batches(self._where, view, found, self._rules, origin, now_ms)
        seen = check_producers(self.producers, view, found, origin)
        if seen is not None:
            return self._known(seen)
        if origin is Origin.CLIENT:
            view, found = recompressed(self._where, view, found, self._config)
        base = offset = self._end
        append_time = now_ms if self._rules.append_time else -1
        for pos, header in found:
            if append_time >= 0:
                set_log_append_time(view, pos, header, append_time)
            assign_offsets(view, pos, offset, leader_epoch)
            offset += header.last_offset_delta + 1
        latest = append_time if append_time >= 0 else max(header.max_timestamp for _, header in found)
        aborted = aborted_by(self.producers, view, found, base)
        active = self._write(view, latest, offset - 1, [(leader_epoch, base)], now_ms, aborted)
        first = base
        for pos, header in found:
            latest = append_time if append_time >= 0 else header.max_timestamp
            active.note(first + header.last_offset_delta, latest, header.size)
            note_producer(self.producers, None if aborted else active, view, pos, header, first, now_ms)
            first += header.last_offset_delta + 1
        self._appended(offset)
        return AppendResult(base, offset - 1, append_time, self.start_offset)

    def _known(self, seen: SeenBatch) -> AppendResult:
        append_time = seen.timestamp if self._rules.append_time else -1
        return AppendResult(
            seen.first_offset, seen.last_offset, append_time, self.start_offset, duplicate=True
        )

    def _append_copies(self, view: memoryview, found: Batches, now_ms: int) -> AppendResult:
        """What was written stays when a later batch cannot be: the follower goes on at the log's end."""
        end = check_copies(self._where, found, self._end)
        for run in copy_runs(found, self._config.segment_bytes):
            first, last = run[0], run[-1]
            part = view[first[0] : last[0] + last[1].size]
            latest = max(header.max_timestamp for _, header in run)
            epochs = [(header.leader_epoch, header.base_offset) for _, header in run]
            aborted = aborted_by(self.producers, view, run, first[1].base_offset)
            active = self._write(part, latest, last[1].last_offset, epochs, now_ms, aborted)
            for pos, header in run:
                active.note(header.last_offset, header.max_timestamp, header.size)
                taker = None if aborted else active
                note_producer(self.producers, taker, view, pos, header, header.base_offset, now_ms)
            self._appended(last[1].next_offset)
        return AppendResult(found[0][1].base_offset, end - 1, -1, self.start_offset)

    def _write(
        self,
        view: memoryview,
        latest: int,
        last_offset: int,
        epochs: list[tuple[int, int]],
        now_ms: int,
        aborted: AbortedTxn | None = None,
    ) -> Segment:
        """Put the bytes into the page cache; returns the segment, which must take note of each batch.

        `epochs` are (leader epoch, first offset) of each batch, or of the first where all have one epoch.
        `aborted` goes into its index first: a marker without that entry would show what it aborts. Raises
        `AppendRefused`.
        """
        try:
            active = self._room_for(len(view), latest, epochs[0][1], last_offset, now_ms)
            for epoch, start in epochs:
                self.epochs.assign(epoch, start)
            if aborted is None:
                active.write(view)
            else:
                active.aborted_nothing = False
                with indexed(active.path("txnindex"), aborted):
                    active.write(view)
        except OSError as error:
            self.segments.drop_unused(self._end)
            raise self._refusal(error) from error
        return active

    def _appended(self, end_offset: int) -> None:
        self._end = end_offset
        self._failing = False

    def _refusal(self, error: OSError) -> AppendRefused:
        message = f"{self._where}: cannot write to {self.directory}: {error.strerror}"
        if not self._failing:  # one line until it works again
            log.error("%s; appends are refused until this is repaired", message)
            self._failing = True
        self.report(error)  # each time: a disk that was full may fail later
        return AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, message)

    # --- segments

    def _room_for(
        self, size: int, timestamp: int, first_offset: int, last_offset: int, now_ms: int
    ) -> Segment:
        """The active segment, a new one where the old is full or old. Raises `AppendRefused`, OSError."""
        if self._closed:
            raise OSError(errno.EBADF, "the log is closed")
        if size > self._config.segment_bytes:
            raise AppendRefused(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{self._where}: {size} bytes are above segment.bytes={self._config.segment_bytes}",
            )
        active = self.segments.active
        if active.has_room(size, timestamp, last_offset, now_ms, self._config):
            return active
        return self.roll(first_offset)

    def roll(self, first_offset: int = 0) -> Segment:
        """Close the active segment and go on in a new one at the log end, or above it at `first_offset`.

        Raises OSError.
        """
        old = self.segments.active
        base = max(first_offset, self._end)
        if not old.size and old.base_offset == base:
            return old
        try:
            old.trim()
            old.save_indexes(closing=True)
            snapshots.take(self.directory, self.producers, self._end)
        except OSError as error:  # both can be made again from the batches
            log.warning("%s: index or producer snapshot not written: %s", self._where, error)
            self.report(error)
        return self.segments.add(base, self._config, self.clock.now_ms())
