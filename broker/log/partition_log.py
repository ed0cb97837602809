"""The log of one partition: an ordered run of segments, appended at one end and deleted at the other.

Owns one partition directory in Kafka's layout (Kafka's UnifiedLog): opening it, what is cut or deleted of it,
what of it is on the disk. Reading is in `log_view`, appending in `ordinary_append` and `full_append`. Knows
nothing of leaders, replicas or waiting readers: whoever owns the partition sets the high watermark and wakes
them.

What is here belongs to one thread, except `flush`, which may run in another while appends go on. Appended
bytes are in the page cache when `append` returns: they survive the death of the process, and that of the
machine only after `flush`.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from broker.clock import Clock
from broker.log import retention, snapshots
from broker.log.config import LogConfig
from broker.log.disk_errors import is_full
from broker.log.errors import OffsetOutOfRange, StorageFailed
from broker.log.files import sync_directory
from broker.log.full_append import AppendResult, FullAppend
from broker.log.incoming import AppendRules, Origin
from broker.log.leader_epochs import LeaderEpochs
from broker.log.loading import load_log
from broker.log.producer_state import ProducerStates
from broker.log.segment_list import SegmentList
from protocol.types import Buffer

log = logging.getLogger("isthmus.broker.log")


class Log(FullAppend):
    __slots__ = ("_flush_lock", "_flushed_ms", "_idle_end", "_truncations", "recovery_point")

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
        super().__init__(directory, config, clock, segments, producers, epochs)
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
        stored = self.store(batches, leader_epoch, origin)
        if not flush_later and self.flush_due:
            self.flush_due_appends()
        return stored

    # --- deleting

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        """What the disk refuses in here goes to the caller, and to whoever looks after the directory."""
        try:
            yield
        except OSError as error:
            self.report(error)
            raise

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
            snapshots.drop(self.directory)
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
        """Give back descriptors, loaded indexes and the kept batch where not used since the last call."""
        for segment in self.segments.items[:-1]:
            segment.release_idle()
        if self._idle_end == self._end:
            self._last = None
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
