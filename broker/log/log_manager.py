"""All partition logs of one broker, over one or more data directories (Kafka's LogManager).

Owns opening them at start, creating and deleting them, and the periodic work: retention, flushing,
checkpoints, unlinking. It has no threads and no timers of its own: the caller runs the `*_tick` methods,
`retention_tick` on the thread that owns the logs, the others wherever waiting for the disk does no harm.
A directory that fails is taken out of use with all its partitions, and one damaged partition alone (I10);
the others go on (Kafka: handleLogDirFailure, KIP-112).
"""

import contextlib
import errno
import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from broker.clock import Clock
from broker.log import checkpoints, retention
from broker.log.config import LogConfig
from broker.log.errors import LogDirError, LogDirFailed, LogError, StorageFailed
from broker.log.log_dir import DELETED_SUFFIX, STRAY_SUFFIX, LogDir
from broker.log.partition_log import Log
from protocol.types import ZERO_UUID, TopicPartition

log = logging.getLogger("isthmus.broker.log")


class LogManager:
    def __init__(
        self,
        log_dirs: Sequence[str | Path],
        broker_id: int,
        cluster_id: str,
        clock: Clock,
        *,
        producer_expiration_ms: int = 86_400_000,
    ) -> None:
        """Lock the directories and check whose they are; nothing is loaded yet. Raises `LogDirError`."""
        self.clock = clock
        self._producer_expiration_ms = producer_expiration_ms
        self._dirs: list[LogDir] = []
        self._loaded: list[LogDir] = []
        """Directories whose partitions are all known, so that their checkpoints may be replaced."""
        self._logs: dict[TopicPartition, Log] = {}
        self._home: dict[TopicPartition, LogDir] = {}
        self._topic_ids: dict[TopicPartition, bytes] = {}
        self._condemned: list[tuple[int, str]] = []
        self._closing = False
        self._load_lock = threading.Lock()
        self.offline_dirs: dict[str, str] = {}
        """Why a directory is out of use, by its path."""
        self._offline: dict[TopicPartition, str] = {}
        self._listeners: list[Callable[[list[TopicPartition]], None]] = []
        self.run_in_owner: Callable[[Callable[[], None]], object] = lambda work: work()
        """Runs work on the thread that owns the logs: a disk's failure may show in another one."""
        self._report = self._storage_failed
        self._warned_future: set[tuple[TopicPartition, int]] = set()
        try:
            for path in log_dirs:
                self._lock_dir(path, broker_id, cluster_id, alone=len(log_dirs) == 1)
            self._require_one()
        except LogDirError:
            self._unlock()
            raise

    def _lock_dir(self, path: str | Path, broker_id: int, cluster_id: str, *, alone: bool) -> None:
        try:
            self._dirs.append(LogDir(path, broker_id, cluster_id))
        except LogDirFailed as error:
            if alone:
                raise
            self.offline_dirs[str(path)] = str(error)
            log.error("%s; going on without it", error)

    def _require_one(self) -> None:
        if not self._dirs:
            raise LogDirError(f"no log directory is left: {'; '.join(self.offline_dirs.values())}")

    # --- start

    def load(self, config_of: Callable[[str], LogConfig] = lambda topic: LogConfig()) -> None:
        """Open every partition found; after a crash their tails are checked. `config_of` gives a topic's
        settings.

        A partition that cannot be opened is left out, and so is a directory whose disk fails or is too full
        for recovery. Raises `LogDirError` when no directory is left, when the process runs out of files or
        memory, or when `close` came meanwhile.
        """
        with self._load_lock:
            for home in list(self._dirs):
                try:
                    self._load_dir(home, config_of)
                except OSError as error:
                    if error.errno in _EXHAUSTED:
                        raise LogDirError(f"{home.path} cannot be loaded: {error}") from error
                    self.fail_dir(home.path, str(error))
            self._require_one()

    def _load_dir(self, home: LogDir, config_of: Callable[[str], LogConfig]) -> None:
        self._condemned += [(0, path) for path in home.condemned()]
        points, starts, marks = (self._checkpoint(home, name) for name in _CHECKPOINTS)
        for tp, path in home.partitions().items():
            if self._closing:
                raise LogDirError("stopped while logs were loaded")
            if tp in self._logs:
                raise LogDirError(
                    f"{tp} is in two log directories: {self._logs[tp].directory} and {path}; remove one"
                )
            try:
                topic_id = checkpoints.read_topic_id(f"{path}/{checkpoints.PARTITION_METADATA}")
                opened = Log.open(
                    path, config_of(tp.topic), self.clock, recovery_point=points.get(tp, 0),
                    start_offset=starts.get(tp, 0), high_watermark=marks.get(tp, 0), clean=home.was_clean,
                    producer_expiration_ms=self._producer_expiration_ms,
                )  # fmt: skip
            except (OSError, LogError) as error:
                if isinstance(error, OSError) and error.errno in _DISK_FAILED | _FULL | _EXHAUSTED:
                    raise
                self._offline[tp] = f"{path} cannot be opened: {error}"
                known = zip(_CHECKPOINTS, (points, starts, marks), strict=True)
                home.damaged[tp] = {name: offsets[tp] for name, offsets in known if tp in offsets}
                log.error("%s is offline, other partitions are not affected: %s", tp, self._offline[tp])
                continue
            self._add(tp, opened, home, topic_id)
            if opened.end_offset < points.get(tp, 0):
                log.error(
                    "%s: the log ends at %d, but was on disk up to %d: records are missing from %s",
                    tp, opened.end_offset, points[tp], path,
                )  # fmt: skip
        home.forget_clean_shutdown()
        self._loaded.append(home)

    def _checkpoint(self, home: LogDir, name: str) -> dict[TopicPartition, int]:
        offsets, damage = home.offsets(name)
        if damage:
            log.warning("%s; going on as if it were empty", damage)
        return offsets

    def _add(self, tp: TopicPartition, opened: Log, home: LogDir, topic_id: bytes | None) -> None:
        self._logs[tp] = opened
        self._home[tp] = home
        home.hosted += 1
        opened.storage_failed = self._report
        if topic_id is not None:
            self._topic_ids[tp] = topic_id

    # --- partitions

    def get(self, tp: TopicPartition) -> Log | None:
        return self._logs.get(tp)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(list(self._logs))

    def __len__(self) -> int:
        return len(self._logs)

    def topic_id(self, tp: TopicPartition) -> bytes | None:
        """The id in the partition's directory; None when it never had one."""
        return self._topic_ids.get(tp)

    def log_dir(self, tp: TopicPartition) -> str:
        return self._home[tp].path

    @property
    def log_dirs(self) -> list[str]:
        """Those in use; the others are in `offline_dirs`."""
        return [home.path for home in self._dirs]

    def is_offline(self, tp: TopicPartition) -> bool:
        """Whether the partition is here, but on a disk that failed, or damaged."""
        return tp in self._offline

    def on_offline(self, callback: Callable[[list[TopicPartition]], None]) -> None:
        """`callback(partitions)` runs when a directory has failed, on the thread that owns the logs."""
        self._listeners.append(callback)

    def fail_dir(self, path: str, reason: str) -> None:
        """Take a directory out of use, and all partitions in it. Its files are left as they are."""
        home = next((each for each in self._dirs if each.path == path), None)
        if home is None:
            return
        self._dirs.remove(home)
        if home in self._loaded:
            self._loaded.remove(home)
        self.offline_dirs[path] = reason
        gone = [tp for tp, each in list(self._home.items()) if each is home]
        log.error(
            "log directory %s has failed and is out of use with %d partitions: %s; repair it and restart",
            path, len(gone), reason,
        )  # fmt: skip
        for tp in gone:
            self._logs.pop(tp).release()
            del self._home[tp]
            self._topic_ids.pop(tp, None)
            self._offline[tp] = reason
        home.close()
        for callback in self._listeners:
            callback(gone)

    def _storage_failed(self, directory: str, error: OSError) -> None:
        """A disk refused; a full one does so until there is room, others are not asked again."""
        if error.errno in _DISK_FAILED | _GONE:
            self.run_in_owner(lambda: self._fail_if_so(directory, error))

    def _fail_if_so(self, directory: str, error: OSError) -> None:
        """A thread may miss a file because its owner deleted or renamed it: that is no failure of a disk."""
        path = os.path.dirname(directory)
        if error.errno == errno.ENOENT and os.path.isdir(path):
            in_use = any(each.directory == directory for each in self._logs.values())
            if not in_use or os.path.isdir(directory):
                return
        self.fail_dir(path, f"{directory}: {error.strerror}")

    def get_or_create(
        self, tp: TopicPartition, topic_id: bytes, config: LogConfig, *, is_new: bool = True
    ) -> Log:
        """The partition's log, new in the directory with the fewest partitions. Raises `LogError`, OSError.

        A partition that is not new may be on a directory that failed: it is not made a second time.

        A log with another topic id is left from a deleted topic of the same name: it is set aside, not
        reused.
        """
        existing = self._logs.get(tp)
        if existing is not None and topic_id != ZERO_UUID and self._topic_ids.get(tp, topic_id) != topic_id:
            self.set_aside(tp)
            existing = None
        if existing is None:
            if self.offline_dirs and not is_new:
                self._offline.setdefault(tp, f"it may be in {', '.join(self.offline_dirs)}")
            if tp in self._offline:
                raise StorageFailed(f"{tp} is offline: {self._offline[tp]}")
            existing = self._create(tp, config)
        existing.configure(config)
        if topic_id != ZERO_UUID and tp not in self._topic_ids:
            checkpoints.write_topic_id(f"{existing.directory}/{checkpoints.PARTITION_METADATA}", topic_id)
            self._topic_ids[tp] = topic_id
        return existing

    def _create(self, tp: TopicPartition, config: LogConfig) -> Log:
        self._require_one()
        home = min(self._dirs, key=lambda candidate: candidate.hosted)
        path = home.file(str(tp))
        try:
            os.mkdir(path)
        except OSError as error:
            self._storage_failed(path, error)
            raise
        try:
            created = Log.open(
                path, config, self.clock, clean=True, producer_expiration_ms=self._producer_expiration_ms
            )
        except (OSError, LogError) as error:
            shutil.rmtree(path, ignore_errors=True)
            if isinstance(error, OSError):
                self._storage_failed(path, error)
            raise
        self._add(tp, created, home, None)
        return created

    def set_config(self, topic: str, config: LogConfig) -> None:
        """New settings for all partitions of a topic here; they hold from the next append on."""
        for tp, existing in list(self._logs.items()):
            if tp.topic == topic:
                existing.configure(config)

    def set_producer_expiration(self, ms: int) -> None:
        """Producers are forgotten after this time from now on, in logs that come later too."""
        self._producer_expiration_ms = ms
        for existing in list(self._logs.values()):
            existing.producers.expiration_ms = ms

    def delete(self, tp: TopicPartition) -> None:
        """Take the partition away at once; its files go with a later `sweep_tick`. Unknown is no error."""
        gone = self._logs.get(tp)
        if gone is not None:
            renamed = self._take_out(tp, DELETED_SUFFIX)
            self._condemned.append((self.clock.now_ms() + gone.config.file_delete_delay_ms, renamed))
        for home in self._dirs:
            if home.damaged.pop(tp, None) is not None:
                renamed = home.file(_renamed(tp, DELETED_SUFFIX))
                os.rename(home.file(str(tp)), renamed)
                self._condemned.append((self.clock.now_ms(), renamed))
                self._offline.pop(tp, None)

    def set_aside(self, tp: TopicPartition) -> None:
        """Take the partition away and keep its files under another name, for an operator to look at."""
        if tp in self._logs:
            renamed = self._take_out(tp, STRAY_SUFFIX)
            log.warning(
                "%s: its log is of an earlier topic with this name, it is kept as %s until you remove it",
                tp,
                renamed,
            )

    def _take_out(self, tp: TopicPartition, suffix: str) -> str:
        gone, home = self._logs[tp], self._home[tp]
        renamed = home.file(_renamed(tp, suffix))
        gone.release()
        os.rename(gone.directory, renamed)
        del self._logs[tp], self._home[tp]
        home.hosted -= 1
        self._topic_ids.pop(tp, None)
        return renamed

    # --- periodic work

    def retention_tick(self, now_ms: int) -> int:
        """Delete old segments, forget quiet producers; returns the number of segments. Runs where appends
        run.
        """
        return sum(self.retain(tp, now_ms) for tp in self)

    def retain(self, tp: TopicPartition, now_ms: int) -> int:
        """`retention_tick` of one partition: with thousands of them, others get their turn in between."""
        count = 0
        each = self._logs.get(tp)
        if each is not None:
            each.producers.expire(now_ms)
            each.release_idle()
            try:
                count += each.enforce_retention(now_ms)
            except (OSError, LogError) as error:  # one partition's trouble is not the others'
                log.warning("%s: retention failed: %s", tp, error)
            self._warn_of_future(tp, each, now_ms)
        return count

    def _warn_of_future(self, tp: TopicPartition, each: Log, now_ms: int) -> None:
        held = retention.held_by_future(each.segments.items, each.config, now_ms)
        if held is not None and (tp, held.base_offset) not in self._warned_future:
            self._warned_future.add((tp, held.base_offset))
            log.warning(
                "%s: segment %020d holds a record dated %d ms in the future: retention.ms deletes neither"
                " it nor anything behind it until then; DeleteRecords does",
                tp, held.base_offset, held.largest_timestamp - now_ms,
            )  # fmt: skip

    def flush_tick(self, now_ms: int) -> int:
        """Flush what `flush.ms` asks for and closed segments; returns how many logs. May run in a thread."""
        count = 0
        for tp, each in list(self._logs.items()):
            due = each.flush_due_ms
            rolled = each.recovery_point < each.segments.active.base_offset
            if not rolled and (due is None or due > now_ms):
                continue
            try:
                each.flush()
                count += 1
            except OSError as error:
                log.warning("%s: flush failed: %s", tp, error)
                self._storage_failed(each.directory, error)
        return count

    def checkpoint_tick(self) -> None:
        """Write recovery points, log starts and high watermarks of all partitions. May run in a thread."""
        for home in list(self._loaded):
            try:
                self._write_checkpoints(home)
            except OSError as error:
                log.warning("%s: checkpoints could not be written: %s", home.path, error.strerror)
                self._storage_failed(home.file(checkpoints.RECOVERY_POINTS), error)

    def _write_checkpoints(self, home: LogDir) -> None:
        logs = [(tp, each) for tp, each in list(self._logs.items()) if self._home.get(tp) is home]
        home.write_offsets(checkpoints.RECOVERY_POINTS, {tp: each.recovery_point for tp, each in logs})
        home.write_offsets(checkpoints.LOG_STARTS, {
            tp: each.start_offset for tp, each in logs if each.start_offset > each.segments.start
        })  # fmt: skip
        home.write_offsets(checkpoints.HIGH_WATERMARKS, {tp: each.high_watermark for tp, each in logs})

    def sweep_tick(self, now_ms: int) -> int:
        """Unlink deleted segments and partitions that are due; returns how many. May run in a thread."""
        count = sum(each.segments.sweep(now_ms) for each in list(self._logs.values()))
        due = [item for item in list(self._condemned) if item[0] <= now_ms]
        for item in due:
            self._condemned.remove(item)  # in place: the owner may add to the list meanwhile
            shutil.rmtree(item[1], ignore_errors=True)
        return count + len(due)

    # --- stop

    def close(self, broker_epoch: int = -1) -> None:
        """Close all logs and mark a clean shutdown, except where one of them could not be closed.

        After a start that failed, directories that were not loaded are left as they are. A thread that
        still loads ends first, with `LogDirError`.
        """
        self._closing = True
        with self._load_lock:
            self._close(broker_epoch)

    def _close(self, broker_epoch: int) -> None:
        with ThreadPoolExecutor(_CLOSING_THREADS) as pool:
            failed = {
                self._home[tp].path for tp in pool.map(self._close_one, list(self._logs)) if tp is not None
            }
        self.checkpoint_tick()
        for home in self._loaded:
            with contextlib.suppress(OSError):
                if home.path not in failed:
                    home.mark_clean_shutdown(broker_epoch)
        self._unlock()

    def _close_one(self, tp: TopicPartition) -> TopicPartition | None:
        """The partition, if it could not be closed."""
        each = self._logs[tp]
        try:
            each.close()
        except (OSError, LogError) as error:
            log.error("%s: could not be closed: %s", tp, error)
            each.release()
            return tp
        return None

    def _unlock(self) -> None:
        for home in self._dirs:
            home.close()


def _renamed(tp: TopicPartition, suffix: str) -> str:
    suffix = f".{uuid.uuid4().hex}{suffix}"
    return str(tp)[: 255 - len(suffix)] + suffix


_CLOSING_THREADS = 16
"""Closing is waiting for fdatasync; the file system serves many of them with one commit."""
_CHECKPOINTS = (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS, checkpoints.HIGH_WATERMARKS)
_DISK_FAILED = frozenset(
    {errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.EUCLEAN, errno.EREMOTEIO}
)
"""The disk itself does not work. A full one (ENOSPC) does again as soon as there is room."""
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM})
"""While running: somebody took the directory away. At start it may be one partition's own trouble."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Of the whole directory, not of one partition; the other directories have their own room."""
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
