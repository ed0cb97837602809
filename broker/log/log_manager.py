"""All partition logs of one broker, over one or more data directories (Kafka's LogManager).

Owns opening them at start, creating and deleting them, and the periodic work: retention, flushing,
checkpoints, unlinking. It has no threads and no timers of its own: the caller runs the `*_tick` methods,
`retention_tick` on the thread that owns the logs, the others wherever waiting for the disk does no harm.
"""

import contextlib
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from broker.clock import Clock
from broker.log import checkpoints, retention
from broker.log.config import LogConfig
from broker.log.errors import LogDirError, LogError
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
        self._warned_future: set[tuple[TopicPartition, int]] = set()
        try:
            for path in log_dirs:
                self._dirs.append(LogDir(path, broker_id, cluster_id))
        except LogDirError:
            self._unlock()
            raise

    # --- start

    def load(self, config_of: Callable[[str], LogConfig] = lambda topic: LogConfig()) -> None:
        """Open every partition found; after a crash their tails are checked. `config_of` gives a topic's
        settings.

        Raises `LogDirError` naming the partition that cannot be opened.
        """
        for home in self._dirs:
            self._load_dir(home, config_of)

    def _load_dir(self, home: LogDir, config_of: Callable[[str], LogConfig]) -> None:
        self._condemned += [(0, path) for path in home.condemned()]
        points, starts, marks = (self._checkpoint(home, name) for name in _CHECKPOINTS)
        for tp, path in home.partitions().items():
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
                raise LogDirError(f"{path} cannot be opened: {error}") from error
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
        return [home.path for home in self._dirs]

    def get_or_create(self, tp: TopicPartition, topic_id: bytes, config: LogConfig) -> Log:
        """The partition's log, new in the directory with the fewest partitions. Raises `LogError`, OSError.

        A log with another topic id is left from a deleted topic of the same name: it is set aside, not
        reused.
        """
        existing = self._logs.get(tp)
        if existing is not None and topic_id != ZERO_UUID and self._topic_ids.get(tp, topic_id) != topic_id:
            self.set_aside(tp)
            existing = None
        if existing is None:
            existing = self._create(tp, config)
        existing.configure(config)
        if topic_id != ZERO_UUID and tp not in self._topic_ids:
            checkpoints.write_topic_id(f"{existing.directory}/{checkpoints.PARTITION_METADATA}", topic_id)
            self._topic_ids[tp] = topic_id
        return existing

    def _create(self, tp: TopicPartition, config: LogConfig) -> Log:
        counts = {home.path: 0 for home in self._dirs}
        for home in self._home.values():
            counts[home.path] += 1
        home = min(self._dirs, key=lambda candidate: counts[candidate.path])
        path = home.file(str(tp))
        Path(path).mkdir()
        try:
            created = Log.open(
                path, config, self.clock, clean=True, producer_expiration_ms=self._producer_expiration_ms
            )
        except (OSError, LogError):
            shutil.rmtree(path, ignore_errors=True)
            raise
        self._add(tp, created, home, None)
        return created

    def set_config(self, topic: str, config: LogConfig) -> None:
        """New settings for all partitions of a topic here; they hold from the next append on."""
        for tp, existing in self._logs.items():
            if tp.topic == topic:
                existing.configure(config)

    def set_producer_expiration(self, ms: int) -> None:
        """Producers are forgotten after this time from now on, in logs that come later too."""
        self._producer_expiration_ms = ms
        for existing in self._logs.values():
            existing.producers.expiration_ms = ms

    def delete(self, tp: TopicPartition) -> None:
        """Take the partition away at once; its files go with a later `sweep_tick`. Unknown is no error."""
        gone = self._logs.get(tp)
        if gone is not None:
            renamed = self._take_out(tp, DELETED_SUFFIX)
            self._condemned.append((self.clock.now_ms() + gone.config.file_delete_delay_ms, renamed))

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
        suffix = f".{uuid.uuid4().hex}{suffix}"
        renamed = home.file(str(tp)[: 255 - len(suffix)] + suffix)
        gone.release()
        os.rename(gone.directory, renamed)
        del self._logs[tp], self._home[tp]
        self._topic_ids.pop(tp, None)
        return renamed

    # --- periodic work

    def retention_tick(self, now_ms: int) -> int:
        """Delete old segments, forget quiet producers; returns the number of segments. Runs where appends
        run.
        """
        count = 0
        for tp, each in list(self._logs.items()):
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
        return count

    def checkpoint_tick(self) -> None:
        """Write recovery points, log starts and high watermarks of all partitions. May run in a thread."""
        for home in self._loaded:
            logs = [(tp, each) for tp, each in list(self._logs.items()) if self._home.get(tp) is home]
            home.write_offsets(checkpoints.RECOVERY_POINTS, {tp: each.recovery_point for tp, each in logs})
            home.write_offsets(checkpoints.LOG_STARTS, {
                tp: each.start_offset for tp, each in logs if each.start_offset > each.segments.start
            })  # fmt: skip
            home.write_offsets(checkpoints.HIGH_WATERMARKS, {tp: each.high_watermark for tp, each in logs})

    def sweep_tick(self, now_ms: int) -> int:
        """Unlink deleted segments and partitions that are due; returns how many. May run in a thread."""
        count = sum(each.segments.sweep(now_ms) for each in list(self._logs.values()))
        due = [path for at, path in self._condemned if at <= now_ms]
        self._condemned = [item for item in self._condemned if item[0] > now_ms]
        for path in due:
            shutil.rmtree(path, ignore_errors=True)
        return count + len(due)

    # --- stop

    def close(self, broker_epoch: int = -1) -> None:
        """Close all logs and mark a clean shutdown, except where one of them could not be closed.

        After a start that failed, directories that were not loaded are left as they are.
        """
        with ThreadPoolExecutor(_CLOSING_THREADS) as pool:
            failed = {self._home[tp].path for tp in pool.map(self._close_one, self._logs) if tp is not None}
        with contextlib.suppress(OSError):
            self.checkpoint_tick()
            for home in self._loaded:
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


_CLOSING_THREADS = 16
"""Closing is waiting for fdatasync; the file system serves many of them with one commit."""
_CHECKPOINTS = (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS, checkpoints.HIGH_WATERMARKS)
