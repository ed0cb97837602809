"""The log of one partition: an ordered run of segments that is appended at one end and deleted at the other.

Owns offsets (start, end, high watermark, last stable), the decision what may be appended, and the files of one
partition directory in Kafka's layout (Kafka's UnifiedLog). Knows nothing of leaders, replicas or waiting readers:
whoever owns the partition sets the high watermark and wakes them.

All methods belong to one thread, except `read(..., blocking=True)`, the look-ups by time and `flush`, which may
run in another while appends go on. Appended bytes are in the page cache when `append` returns: they survive the
death of the process, and of the machine only after `flush`.
"""

import errno
import logging
import random
import threading
from pathlib import Path
from typing import NamedTuple

from broker.clock import Clock
from broker.log import retention, time_lookup
from broker.log.config import LogConfig
from broker.log.errors import AppendRefused, OffsetOutOfRange, StorageFailed
from broker.log.files import remove_files, replace_file
from broker.log.incoming import Batches, Origin, check_batches, read_batches
from broker.log.leader_epochs import LeaderEpochs
from broker.log.loading import load_log, rebuild_producers, snapshot_offsets, snapshot_path
from broker.log.markers import Marker, read_marker
from broker.log.producer_snapshot import encode_snapshot
from broker.log.producer_state import ProducerStates, SeenBatch
from broker.log.segment import MAX_RELATIVE_OFFSET, Segment
from broker.log.segment_list import SegmentList
from broker.log.time_lookup import FoundOffset
from broker.log.txn_index import AbortedTxn, append_aborted
from protocol.errors import DecodeError, ErrorCode
from protocol.records import BatchHeader, assign_offsets, set_log_append_time
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


class LogSlice(NamedTuple):
    """Whole batches; `next_offset` is where the next read goes on."""

    segments: list[bytes | memoryview]
    size: int
    next_offset: int


class Log:
    __slots__ = (
        "_closed", "_end", "_failing", "_flush_lock", "_flushed_ms", "_high_watermark", "_truncations", "_where",
        "clock", "config", "directory", "epochs", "producers", "recovery_point", "segments", "start_offset",
    )  # fmt: skip

    def __init__(
        self, directory: str, where: str, config: LogConfig, clock: Clock, segments: SegmentList,
        producers: ProducerStates, epochs: LeaderEpochs,
    ) -> None:  # fmt: skip
        """Use `open`."""
        self.directory = directory
        self._where = where
        self.config = config
        self.clock = clock
        self.segments = segments
        self.producers = producers
        self.epochs = epochs
        self.start_offset = 0
        self._end = 0
        self._high_watermark = 0
        self.recovery_point = 0
        self._flushed_ms = clock.now_ms()
        self._flush_lock = threading.Lock()
        self._truncations = 0
        self._failing = False
        self._closed = False

    @classmethod
    def open(
        cls,
        directory: str | Path,
        config: LogConfig,
        clock: Clock,
        *,
        recovery_point: int = 0,
        start_offset: int = 0,
        high_watermark: int | None = None,
        clean: bool = False,
        producer_expiration_ms: int = 86_400_000,
    ) -> "Log":
        """Open a partition directory, creating its first segment when there is none.

        `clean` says that the files were closed properly. Otherwise everything from `recovery_point` on is read
        and checked, and a torn tail is cut. `high_watermark` None means the log end: this is the only replica.
        """
        directory = str(directory)
        where = Path(directory).name
        loaded = load_log(
            directory, where, config, clock.now_ms(), recovery_point=recovery_point, start_offset=start_offset,
            clean=clean, producer_expiration_ms=producer_expiration_ms,
        )  # fmt: skip
        segments = SegmentList(directory, loaded.segments)
        self = cls(directory, where, config, clock, segments, loaded.producers, loaded.epochs)
        self.start_offset = loaded.start_offset
        self._end = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        self._high_watermark = self.start_offset
        self.set_high_watermark(loaded.end_offset if high_watermark is None else high_watermark)
        return self

    # --- offsets

    @property
    def end_offset(self) -> int:
        return self._end

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    def set_high_watermark(self, offset: int) -> None:
        """Bounded by log start and end."""
        self._high_watermark = offset = max(self.start_offset, min(offset, self._end))
        self.producers.on_high_watermark(offset)

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open; never above the high watermark (KIP-98)."""
        first = self.producers.first_unstable
        return self._high_watermark if first is None or first > self._high_watermark else first

    @property
    def size(self) -> int:
        """Bytes of records."""
        return self.segments.size

    # --- appending

    def append(self, batches: Buffer, leader_epoch: int, origin: Origin = Origin.CLIENT) -> AppendResult:
        """Store batches at the end. Offsets, leader epoch and append time are written into the caller's buffer.

        Copies of a leader's batches (`Origin.REPLICATION`) keep what they have. All or nothing: raises
        `AppendRefused`, and then the log is as before.
        """
        view = batches if type(batches) is memoryview else memoryview(batches)
        now_ms = self.clock.now_ms()
        config = self.config
        found = read_batches(self._where, view, config, origin)
        if origin is Origin.REPLICATION:
            return self._store(view, found, found[0][1].leader_epoch, now_ms, copied=True)
        check_batches(self._where, view, found, config, origin, now_ms)
        seen = self._check_producers(view, found, origin)
        if seen is not None:
            return AppendResult(seen.first_offset, seen.last_offset, -1, self.start_offset, duplicate=True)
        offset = self._end
        append_time = config.log_append_time
        for pos, header in found:
            if append_time:
                set_log_append_time(view, pos, header, now_ms)
            assign_offsets(view, pos, offset, leader_epoch)
            offset += header.last_offset_delta + 1
        return self._store(view, found, leader_epoch, now_ms, copied=False)

    def _check_producers(self, view: memoryview, found: Batches, origin: Origin) -> SeenBatch | None:
        """Refuse holes and old epochs; a batch seen before is returned instead."""
        producers = self.producers
        pending: dict[int, tuple[int, int]] = {}
        for at, (pos, header) in enumerate(found):
            if header.producer_id < 0:
                continue
            if header.is_control:
                marker = self._marker(view, pos, header)
                if marker is not None:
                    producers.check_marker(header, marker.coordinator_epoch)
                continue
            if origin is not Origin.CLIENT:
                continue
            seen = producers.duplicate(header)
            if seen is not None:
                if len(found) == 1:
                    return seen
                raise AppendRefused(
                    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                    f"{self._where}: batch {at} of {len(found)} was stored before at offset {seen.first_offset}",
                )
            producers.check(header, pending.get(header.producer_id))
            if len(found) > 1:
                pending[header.producer_id] = (header.producer_epoch, header.last_sequence)
        return None

    def _marker(self, view: memoryview, pos: int, header: BatchHeader) -> Marker | None:
        try:
            return read_marker(view, pos, header)
        except DecodeError as error:
            raise AppendRefused(ErrorCode.INVALID_RECORD, f"{self._where}: {error}") from None

    def _store(
        self, view: memoryview, found: Batches, leader_epoch: int, now_ms: int, *, copied: bool
    ) -> AppendResult:
        stamp = now_ms if self.config.log_append_time and not copied else None
        base = offset = found[0][1].base_offset if copied else self._end
        if copied:
            self._check_copy(found)
            last = found[-1][1].last_offset
        else:
            last = base - 1 + sum(header.last_offset_delta + 1 for _, header in found)
        try:
            active = self._roll_if_due(
                len(view), stamp or max(h.max_timestamp for _, h in found), last, now_ms
            )
            if copied:
                for _, header in found:
                    self.epochs.assign(header.leader_epoch, header.base_offset)
            else:
                self.epochs.assign(leader_epoch, base)
            active.write(view)
        except OSError as error:
            raise self._storage_refusal(error) from error
        self._failing = False
        for pos, header in found:
            if copied:
                offset = header.base_offset
            next_offset = offset + header.last_offset_delta + 1
            active.note(next_offset - 1, stamp or header.max_timestamp, header.size)
            if header.producer_id >= 0:
                self._note_producer(view, pos, header, offset, now_ms)
            offset = next_offset
        self._end = offset
        if offset - self.recovery_point >= self.config.flush_messages:
            self.flush()
        return AppendResult(base, offset - 1, -1 if stamp is None else stamp, self.start_offset)

    def _check_copy(self, found: Batches) -> None:
        """Copies go on where the log ends; compaction at the leader may leave holes between them."""
        expected = self._end
        for _, header in found:
            if header.base_offset < expected:
                raise AppendRefused(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{self._where}: a copied batch begins at offset {header.base_offset}, the log is at {expected}",
                )
            expected = header.next_offset

    def _note_producer(
        self, view: memoryview, pos: int, header: BatchHeader, offset: int, now_ms: int
    ) -> None:
        if not header.is_control:
            self.producers.update(header, offset, now_ms)
            return
        marker = read_marker(view, pos, header)
        if marker is None:
            return
        done = self.producers.end_transaction(
            header, offset, commit=marker.commit, coordinator_epoch=marker.coordinator_epoch, now_ms=now_ms
        )
        if done is not None and done.aborted:
            stable = self.producers.stable_after(done)
            append_aborted(
                self.segments.active.path("txnindex"),
                AbortedTxn(done.producer_id, done.first_offset, done.last_offset, stable),
            )

    def _storage_refusal(self, error: OSError) -> AppendRefused:
        message = f"{self._where}: cannot write to {self.directory}: {error.strerror}"
        if not self._failing:  # one line until it works again
            log.error("%s; appends are refused until this is repaired", message)
            self._failing = True
        return AppendRefused(ErrorCode.KAFKA_STORAGE_ERROR, message)

    # --- segments

    def _roll_if_due(self, size: int, timestamp: int, last_offset: int, now_ms: int) -> Segment:
        config, active = self.config, self.segments.active
        if self._closed:
            raise OSError(errno.EBADF, "the log is closed")
        if size > config.segment_bytes:
            raise AppendRefused(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{self._where}: {size} bytes are above segment.bytes={config.segment_bytes}",
            )
        if not active.size:
            return active if last_offset - active.base_offset <= MAX_RELATIVE_OFFSET else self.roll()
        waited = timestamp - active.first_timestamp if active.first_timestamp else now_ms - active.created_ms
        if (
            active.size + size > config.segment_bytes
            or waited > config.segment_ms - active.jitter_ms
            or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            or active.indexes_full(config)
        ):
            return self.roll()
        return active

    def roll(self) -> Segment:
        """Close the active segment and go on in a new one that starts at the log end. Raises OSError."""
        old = self.segments.active
        if not old.size and old.base_offset == self._end:
            return old
        new = self.segments.add(self._end, self.config, self.clock.now_ms())
        if self.config.segment_jitter_ms > 0:
            new.jitter_ms = random.randrange(self.config.segment_jitter_ms)
        try:
            old.save_indexes(closing=True)
            self._take_snapshot()
        except OSError as error:  # both can be made again from the batches
            log.warning("%s: index or producer snapshot not written: %s", self._where, error)
        return new

    def _take_snapshot(self) -> None:
        taken = snapshot_offsets(self.directory)
        if self._end and (not taken or taken[-1] != self._end):
            path = snapshot_path(self.directory, self._end)
            replace_file(path, encode_snapshot(self.producers.to_snapshot()))

    def _prune_snapshots(self) -> None:
        """Keep those at segment starts and the newest, as recovery may need them."""
        taken = snapshot_offsets(self.directory)
        bases = {segment.base_offset for segment in self.segments}
        remove_files([snapshot_path(self.directory, at) for at in taken[:-1] if at not in bases])

    # --- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int | None = None,
        *,
        min_one: bool = True,
        blocking: bool = True,
    ) -> LogSlice:
        """Whole batches from the one that holds `offset`, up to `max_bytes`, none that starts at `max_offset` or above.

        With `min_one` the first batch comes even when it is larger. May return fewer bytes than there are: all come
        from one segment. Unless `blocking`, raises `NotCached` where the disk would have to be waited for.
        Raises `OffsetOutOfRange`.
        """
        end = self._end
        if offset < self.start_offset or offset > end:
            raise OffsetOutOfRange(self._where, offset, self.start_offset, end)
        limit = end if max_offset is None or max_offset > end else max_offset
        if offset >= limit:
            return LogSlice([], 0, offset)
        try:
            data, next_offset = self.segments.read(
                offset, max_bytes, limit, end, at_least_one=min_one, blocking=blocking
            )
        except OSError as error:
            raise StorageFailed(f"{self._where}: cannot read {self.directory}: {error.strerror}") from error
        return LogSlice([data] if data else [], len(data), next_offset)

    def offset_for_timestamp(self, timestamp: int) -> FoundOffset | None:
        """First record at or after a time (ms). Waits for the disk."""
        return time_lookup.first_at_or_after(
            self.segments.from_offset(self.start_offset), timestamp, self.start_offset
        )

    def offset_of_max_timestamp(self) -> FoundOffset | None:
        """First record with the largest timestamp of all (ListOffsets -3). Waits for the disk."""
        return time_lookup.latest_timestamp(self.segments.from_offset(self.start_offset), self.start_offset)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above `epoch`; (-1, -1) when unknown (KIP-279)."""
        return self.epochs.end_offset(epoch, self._end)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """What a read_committed reader of this range must drop."""
        return self.segments.aborted(start_offset, end_offset)

    # --- deleting

    def truncate_to(self, offset: int) -> None:
        """Make the log end at `offset` (a follower drops what its leader does not have). Raises OSError."""
        if offset >= self._end:
            return
        with self._flush_lock:
            self._truncations += 1
            if offset <= self.segments.start:
                self.segments.replace_all(offset, self.config, self.clock.now_ms())
            else:
                self.segments.truncate(offset)
            self._set_end(offset)

    def truncate_fully(self, offset: int) -> None:
        """Drop everything and begin anew at `offset` (the leader's log starts behind our end)."""
        with self._flush_lock:
            self._truncations += 1
            self.segments.replace_all(offset, self.config, self.clock.now_ms())
            self.start_offset = offset
            self._set_end(offset)

    def _set_end(self, offset: int) -> None:
        self._end = offset
        self.start_offset = min(self.start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs.truncate_end(offset)
        self.epochs.truncate_start(self.start_offset)
        rebuild_producers(
            self.directory, self.producers, self.segments.items, offset, self.clock.now_ms(), repair=False
        )
        self.set_high_watermark(self._high_watermark)

    def delete_before(self, offset: int) -> int:
        """Move the log start up (DeleteRecords); returns the new log start. Files go with the next retention.

        Raises `OffsetOutOfRange` above the high watermark. Going back is no error and does nothing.
        """
        if offset > self._high_watermark:
            raise OffsetOutOfRange(self._where, offset, self.start_offset, self._high_watermark)
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.truncate_start(offset)
        return self.start_offset

    def enforce_retention(self, now_ms: int) -> int:
        """Let go of segments that are too old, too many or below the log start; returns how many."""
        items = self.segments.items
        count = retention.expired_count(
            items,
            self.config,
            now_ms,
            start_offset=self.start_offset,
            end_offset=self._end,
            limit=self._high_watermark,
        )
        if not count:
            return 0
        if count == len(items):
            if self.roll() is items[-1]:
                count -= 1
        self.start_offset = max(self.start_offset, self.segments.items[count].base_offset)
        gone = self.segments.drop_first(count, now_ms + self.config.file_delete_delay_ms)
        self.epochs.truncate_start(self.start_offset)
        self._prune_snapshots()
        log.info(
            "%s: %d segments of %d bytes deleted, the log starts at %d",
            self._where, len(gone), sum(segment.size for segment in gone), self.start_offset,
        )  # fmt: skip
        return count

    # --- durability

    def flush(self) -> None:
        """Get everything appended so far onto the disk and move the recovery point up. May run in a thread."""
        with self._flush_lock:
            end, truncations = self._end, self._truncations
            if end <= self.recovery_point or self._closed:
                return
            for segment in self.segments.from_offset(self.recovery_point):
                segment.file.sync()
                segment.save_indexes()
            if truncations == self._truncations:
                self.recovery_point = end
                self._flushed_ms = self.clock.now_ms()

    @property
    def flush_due_ms(self) -> int | None:
        """When `flush.ms` wants the next flush; None when there is nothing to flush."""
        return None if self._end <= self.recovery_point else self._flushed_ms + self.config.flush_ms

    def close(self) -> None:
        """Leave the directory so that a clean start needs to read nothing. Raises OSError."""
        if self._closed:
            return
        if self._end > self.recovery_point:
            self.segments.active.save_indexes(closing=True)
            self.flush()
        self._take_snapshot()
        self._prune_snapshots()
        self.release()

    def release(self) -> None:
        """Let go of all files at once, without writing anything (after a failure, or before deletion)."""
        self._closed = True
        for segment in self.segments:
            segment.release()
