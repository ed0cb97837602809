"""The log of one partition: an ordered run of segments, appended at one end and deleted at the other.

Owns offsets (start, end, high watermark, last stable), the decision what may be appended, and one partition
directory in Kafka's layout (Kafka's UnifiedLog). Knows nothing of leaders, replicas or waiting readers:
whoever owns the partition sets the high watermark and wakes them.

Reading is in `log_view`. What is here belongs to one thread, except `flush`, which may run in another while
appends go on. Appended bytes are in the page cache when `append` returns: they survive the death of the
process, and that of the machine only after `flush`.
"""

import contextlib
import errno
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from broker.clock import Clock
from broker.log import retention, snapshots
from broker.log.config import LogConfig
from broker.log.disk_errors import is_full
from broker.log.errors import AppendRefused, OffsetOutOfRange, StorageFailed
from broker.log.files import sync_directory
from broker.log.incoming import (
    AppendRules,
    Batches,
    Origin,
    check_batches,
    check_copies,
    copy_runs,
    read_batches,
)
from broker.log.leader_epochs import LeaderEpochs
from broker.log.loading import load_log
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


class Log(OrdinaryAppend):
    __slots__ = (
        "_flush_lock", "_flushed_ms", "_idle_end", "_truncations",
        "clock",
        "recovery_point",
    )  # fmt: skip

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        clock: Clock,
        segments: SegmentList,
        producers: ProducerStates,
        epochs: LeaderEpochs,
    ) -> None:
        """Use `open`."""
        super().__init__(directory, config, segments, producers, epochs)
        self.clock = clock
        self.recovery_point = 0
        self._idle_end = -1
        self._flushed_ms = clock.now_ms()
        self._flush_lock = threading.Lock()
        self._truncations = 0

    @classmethod
    def open(
        cls, directory: str | Path, config: LogConfig, clock: Clock, *,
        recovery_point: int = 0, start_offset: int = 0, high_watermark: int | None = None,
        clean: bool = False, producer_expiration_ms: int = 86_400_000,
    ) -> "Log":  # fmt: skip
        """Open a partition directory, creating its first segment when there is none.

        `clean` says that the files were closed properly. Otherwise everything from `recovery_point` on is
        read and checked, and a torn tail is cut. `high_watermark` None means the log end, as for the only
        replica. Raises `LogError`, OSError.
        """
        directory = str(directory)
        loaded = load_log(
            directory,
            config,
            clock.now_ms(),
            recovery_point=recovery_point,
            start_offset=start_offset,
            known_end=max(recovery_point, high_watermark or 0),
            clean=clean,
            producer_expiration_ms=producer_expiration_ms,
        )
        segments = SegmentList(directory, loaded.segments)
        self = cls(directory, config, clock, segments, loaded.producers, loaded.epochs)
        self.start_offset = loaded.start_offset
        self._end = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        self.high_watermark = loaded.end_offset if high_watermark is None else high_watermark
        segments.active.release_file()  # most partitions of a start stay idle
        return self

    @property
    def max_batch_bytes(self) -> int:
        """Largest batch that may be appended (`max.message.bytes`)."""
        return self._rules.max_batch_bytes

    def configure(self, config: LogConfig) -> None:
        """Settings for appends and retention from now on; open segments keep their index settings."""
        if config is self._config:
            return  # the controller repeats itself, and topics may have thousands of partitions
        self._config = config
        self._rules = AppendRules.of(config)
        self._room = None

    # --- appending

    def assign_epoch(self, epoch: int) -> None:
        """A leader's term begins at the log end."""
        self.epochs.begin(epoch)

    def append(
        self, batches: Buffer, leader_epoch: int, origin: Origin = Origin.CLIENT, *, flush_later: bool = False
    ) -> AppendResult:
        """Store batches at the end; offsets, leader epoch and append time are written into the caller's
        buffer.

        Copies of a leader's batches (`Origin.REPLICATION`) keep what they have. All or nothing: raises
        `AppendRefused`, and then the log is as before. Waits for the disk when `flush.messages` says so;
        `flush_later` leaves that to the caller, who looks at `flush_due`.
        """
        stored = self._append(batches, leader_epoch, origin)
        if not flush_later and self.flush_due:
            self.flush_due_appends()
        return stored

    def _append(self, batches: Buffer, leader_epoch: int, origin: Origin) -> AppendResult:
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

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        """What the disk refuses in here goes to the caller, and to whoever looks after the directory."""
        try:
            yield
        except OSError as error:
            self.report(error)
            raise

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

    # --- deleting

    def truncate_to(self, offset: int) -> None:
        """Make the log end at `offset`, or before the batch that reaches over it. Raises OSError."""
        if offset >= self._end:
            return
        with self._flush_lock, self._reported():
            self._truncations += 1
            if offset <= self.segments.start:
                self.segments.replace_all(offset, self._config, self.clock.now_ms())
            else:
                offset = self.segments.truncate(offset)
            self._set_end(offset)

    def truncate_fully(self, offset: int) -> None:
        """Drop everything and begin anew at `offset` (the leader's log starts behind our end)."""
        with self._flush_lock, self._reported():
            self._truncations += 1
            self.segments.replace_all(offset, self._config, self.clock.now_ms())
            self.start_offset = offset
            self._set_end(offset)

    def _set_end(self, offset: int) -> None:
        self._end = offset
        self._room = None
        self.start_offset = min(self.start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs.truncate_end(offset)
        self.epochs.truncate_start(self.start_offset)
        now_ms = self.clock.now_ms()
        snapshots.rebuild(self.directory, self.producers, self.segments.items, offset, now_ms)
        self.high_watermark = self._high_watermark

    def delete_before(self, offset: int) -> int:
        """Move the log start up (DeleteRecords); returns it. Files go with the next retention.

        Raises `OffsetOutOfRange` above the high watermark. An offset below the start changes nothing.
        """
        if offset > self._high_watermark:
            raise OffsetOutOfRange(self._where, offset, self.start_offset, self._high_watermark)
        if offset > self.start_offset:
            self._move_start(offset)
        return self.start_offset

    def _move_start(self, offset: int) -> None:
        self.start_offset = offset
        try:
            self.epochs.truncate_start(offset)
        except OSError as error:
            if is_full(error):
                return  # deleting is what makes room; the next start trims the file as well
            self.report(error)
            raise StorageFailed(
                f"{self._where}: cannot write to {self.directory}: {error.strerror}"
            ) from error

    def enforce_retention(self, now_ms: int) -> int:
        """Let go of segments that are too old, too many or below the log start; returns how many."""
        count = retention.expired_count(
            self.segments.items,
            self._config,
            now_ms,
            start_offset=self.start_offset,
            end_offset=self._end,
            limit=self._high_watermark,
        )
        if count == len(self.segments):
            self.roll()  # there is always an active segment
            count = min(count, len(self.segments) - 1)
        if count:
            self._move_start(max(self.start_offset, self.segments.items[count].base_offset))
            gone = self.segments.drop_first(count, now_ms + self._config.file_delete_delay_ms)
            snapshots.prune(self.directory, (segment.base_offset for segment in self.segments))
            size = sum(segment.size for segment in gone)
            log.info(
                "%s: deleted %d segments, %d bytes; starts at %d", self._where, count, size, self.start_offset
            )
        return count

    # --- durability

    @property
    def flush_due(self) -> bool:
        """Whether `flush.messages` records or more are not on disk yet."""
        return self._end - self.recovery_point >= self._config.flush_messages

    def flush_due_appends(self) -> None:
        """`flush` for appends that are answered after it. May run in a thread. Raises `AppendRefused`."""
        try:
            self.flush()
        except OSError as error:
            raise self._refusal(error) from error

    def flush(self) -> None:
        """Get all that was appended onto the disk and move the recovery point up. May run in a thread."""
        with self._flush_lock:
            end, truncations = self._end, self._truncations
            if end <= self.recovery_point or self._closed:
                return
            active = self.segments.active
            for segment in self.segments.from_offset(self.recovery_point):
                segment.sync(closing=segment is not active)
            sync_directory(self.directory)
            if truncations == self._truncations:
                self.recovery_point = end
                self._flushed_ms = self.clock.now_ms()

    @property
    def flush_due_ms(self) -> int | None:
        """When `flush.ms` wants the next flush; None when there is nothing to flush."""
        return None if self._end <= self.recovery_point else self._flushed_ms + self._config.flush_ms

    def release_idle(self) -> None:
        """Give back descriptors and loaded indexes that were not used since the last call."""
        for segment in self.segments.items[:-1]:
            segment.release_idle()
        if self._idle_end == self._end:
            self.segments.active.release_idle(written=True)
        self._idle_end = self._end

    def close(self) -> None:
        """Leave the directory so that a clean start needs to read nothing. Raises OSError."""
        if self._closed:
            return
        self.segments.active.trim()
        self.segments.active.save_indexes(closing=True)
        self.flush()
        snapshots.take(self.directory, self.producers, self._end)
        snapshots.prune(self.directory, (segment.base_offset for segment in self.segments))
        self.release()

    def release(self) -> None:
        """Let go of all files at once and write nothing (after a failure, or before deletion)."""
        self._closed = True
        self._room = None
        for segment in self.segments:
            segment.release()
