"""All partition logs of one broker, over one or more data directories (Kafka's LogManager).

Owns opening them at start, creating and deleting them, and closing them. What there is and what has failed is
in `log_table`, the periodic work in `log_upkeep`. A directory that fails is taken out of use with all its
partitions, and one damaged partition alone (I10); the others go on.
"""

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from broker.clock import Clock
from broker.log import checkpoints, duplicates
from broker.log.config import LogConfig
from broker.log.disk_errors import EXHAUSTED, FAILED, FULL
from broker.log.errors import LogDirError, LogDirFailed, LogError, StorageFailed
from broker.log.log_dir import DELETED_SUFFIX, STRAY_SUFFIX, LogDir, Unchosen, renamed
from broker.log.log_table import Offline
from broker.log.log_upkeep import LogUpkeep
from broker.log.partition_log import Log
from protocol.types import ZERO_UUID, TopicPartition

log = logging.getLogger("isthmus.broker.log")


class LogManager(LogUpkeep):
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
        super().__init__()
        self.clock = clock
        self._producer_expiration_ms = producer_expiration_ms
        self._closing = False
        self._load_lock = threading.Lock()
        self.before_create: Callable[[TopicPartition, str], None] = lambda tp, path: None
        """Runs before a partition is made in a directory: what is remembered of its name there has to go."""
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

    @property
    def was_clean(self) -> bool:
        """Whether every directory was left by a clean stop; ask before `load`."""
        return all(home.was_clean for home in self._dirs)

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
                    if error.errno in EXHAUSTED:
                        raise LogDirError(f"{home.path} cannot be loaded: {error}") from error
                    self.fail_dir(home.path, str(error))
            self._require_one()

    def _load_dir(self, home: LogDir, config_of: Callable[[str], LogConfig]) -> None:
        self._condemned += [(0, path) for path in home.condemned()]
        points, starts, marks = (self._checkpoint(home, name) for name in _CHECKPOINTS)
        for tp, path in home.partitions().items():
            if self._closing:
                raise LogDirError("stopped while logs were loaded")
            known = zip(_CHECKPOINTS, (points, starts, marks), strict=True)
            offsets = {name: found[tp] for name, found in known if tp in found}
            try:
                topic_id = duplicates.topic_id_in(path)
                if tp in self._logs:
                    self._keep_for_choice(tp, home, path, topic_id, offsets)
                    continue
                opened = self._open(path, config_of(tp.topic), offsets, clean=home.was_clean)
            except (OSError, LogError) as error:
                if isinstance(error, LogDirError):
                    raise
                if isinstance(error, OSError) and error.errno in FAILED | FULL | EXHAUSTED:
                    raise
                self._offline[tp] = Offline(f"{path} cannot be opened: {error}", None)
                home.damaged[tp] = offsets
                log.error(
                    "%s is offline, other partitions are not affected: %s", tp, self._offline[tp].reason
                )
                continue
            self._add(tp, opened, home, topic_id)
            if opened.end_offset < points.get(tp, 0):
                log.error(
                    "%s: the log ends at %d, but was on disk up to %d: records are missing from %s",
                    tp, opened.end_offset, points[tp], path,
                )  # fmt: skip
        home.forget_clean_shutdown()
        self._loaded.append(home)

    def _open(self, path: str, config: LogConfig, offsets: Mapping[str, int], *, clean: bool) -> Log:
        point, start, mark = (offsets.get(name, 0) for name in _CHECKPOINTS)
        return Log.open(
            path, config, self.clock, recovery_point=point, start_offset=start, high_watermark=mark,
            clean=clean, producer_expiration_ms=self._producer_expiration_ms,
        )  # fmt: skip

    def _keep_for_choice(
        self, tp: TopicPartition, home: LogDir, path: str, topic_id: bytes | None, offsets: Mapping[str, int]
    ) -> None:
        """Leave a second directory of the name unopened until the controller speaks. Raises `LogDirError`."""
        other = self._logs[tp].directory
        if topic_id is None or self._topic_ids.get(tp, topic_id) == topic_id:
            raise duplicates.refusal(tp, other, path)
        home.unchosen[tp] = Unchosen(path, topic_id, offsets)
        log.warning(
            "%s is in %s and %s, of different topics: the controller says which counts", tp, other, path
        )

    def _condemn(self, path: str, due_ms: int) -> None:
        self._condemned.append((due_ms, path))

    def _checkpoint(self, home: LogDir, name: str) -> dict[TopicPartition, int]:
        offsets, damage = home.offsets(name)
        if damage:
            log.warning("%s; going on as if it were empty", damage)
        return offsets

    # --- partitions

    def get_or_create(
        self, tp: TopicPartition, topic_id: bytes, config: LogConfig, *, is_new: bool = True
    ) -> Log:
        """The partition's log, new in the directory with the fewest partitions. Raises `LogError`, OSError.

        A partition that is not new may be on a directory that failed: it is not made a second time.

        A log with another topic id is left from a deleted topic of the same name: it is set aside, not
        reused.
        """
        if topic_id != ZERO_UUID:
            self._choose(tp, topic_id, config)
        existing = self._logs.get(tp)
        if existing is None:
            reason = self._why_offline(tp, topic_id, is_new=is_new)
            if reason is not None:
                raise StorageFailed(f"{tp} is offline: {reason}")
            existing = self._create(tp, config)
        existing.configure(config)
        if topic_id != ZERO_UUID and tp not in self._topic_ids:
            try:
                checkpoints.write_topic_id(f"{existing.directory}/{checkpoints.PARTITION_METADATA}", topic_id)
            except OSError as error:
                existing.report(error)
                raise
            self._topic_ids[tp] = topic_id
        return existing

    def _choose(self, tp: TopicPartition, topic_id: bytes, config: LogConfig) -> None:
        """Of what goes by this name, keep in use what is of this topic, and set the rest aside."""
        if self._topic_ids.get(tp, topic_id) != topic_id:
            self.set_aside(tp, others=False)
        for home in self._dirs:
            found = home.unchosen.get(tp)
            if found is None:
                continue
            if found.topic_id == topic_id and tp not in self._logs:
                opened = self._open(found.path, config, found.offsets, clean=home.was_clean)
                del home.unchosen[tp]
                self._adopt(tp, opened, home, topic_id)
            else:
                self._stray(tp, home)

    def _create(self, tp: TopicPartition, config: LogConfig) -> Log:
        self._require_one()
        home = min(self._dirs, key=lambda candidate: candidate.hosted)
        path = home.file(str(tp))
        try:
            self.before_create(tp, home.path)
            os.mkdir(path)
        except OSError as error:
            self.storage_failed(path, error)
            raise
        try:
            created = Log.open(
                path, config, self.clock, clean=True, producer_expiration_ms=self._producer_expiration_ms
            )
        except (OSError, LogError) as error:
            shutil.rmtree(path, ignore_errors=True)
            if isinstance(error, OSError):
                self.storage_failed(path, error)
            raise
        self._adopt(tp, created, home, None)
        return created

    def _adopt(self, tp: TopicPartition, opened: Log, home: LogDir, topic_id: bytes | None) -> None:
        """`_add` beside an owner that may take the directory out of use meanwhile. Raises `StorageFailed`."""
        self._add(tp, opened, home, topic_id)
        if home not in self._dirs:
            reason = self.offline_dirs.get(home.path, f"{home.path} has failed")
            self.run_in_owner(lambda: self._take_offline([tp], reason))
            raise StorageFailed(f"{tp} is offline: {reason}")

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
        """Take the partition away at once; its files go with a later `sweep_tick`. Unknown is no error.

        What is on a directory that is out of use stays there. When that comes back, the start finds a topic
        that no longer exists, or two of the name, and sets aside what is of the deleted one.
        """
        gone = self._logs.get(tp)
        if gone is not None:
            due_ms = self.clock.now_ms() + gone.config.file_delete_delay_ms
            self._condemn(self._take_out(tp, DELETED_SUFFIX), due_ms)
        for home in self._dirs:
            if tp in home.damaged:
                path = home.file(str(tp))
                self._condemn(
                    self._renamed(path, home.file(renamed(tp, DELETED_SUFFIX))), self.clock.now_ms()
                )
                del home.damaged[tp]
            if tp in home.unchosen:
                self._stray(tp, home)
        offline = self._offline.pop(tp, None)
        if offline is not None and self.offline_dirs:
            log.warning(
                "%s is deleted, but its files may be in %s, which is out of use (%s): once that is back, they"
                " are set aside, not read", tp, ", ".join(self.offline_dirs), offline.reason,
            )  # fmt: skip

    def set_aside(self, tp: TopicPartition, *, others: bool = True) -> None:
        """Take the partition away and keep its files under another name, for an operator to look at."""
        if tp in self._logs:
            _say_stray(tp, self._take_out(tp, STRAY_SUFFIX))
        for home in self._dirs:
            if others and tp in home.unchosen:
                self._stray(tp, home)

    def _stray(self, tp: TopicPartition, home: LogDir) -> None:
        """Set aside what was found under a name that another directory has as well."""
        found = home.unchosen[tp]
        _say_stray(tp, self._renamed(found.path, home.file(renamed(tp, STRAY_SUFFIX))))
        del home.unchosen[tp]

    def _take_out(self, tp: TopicPartition, suffix: str) -> str:
        gone, home = self._logs[tp], self._home[tp]
        gone.release()
        path = self._renamed(gone.directory, home.file(renamed(tp, suffix)))
        self._remove(tp)
        return path

    def _renamed(self, path: str, new: str) -> str:
        try:
            return _rename(path, new)
        except OSError as error:
            self.storage_failed(path, error)
            raise

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
        # A disk may fail meanwhile, and its logs go out of the table.
        logs, homes = list(self._logs.items()), dict(self._home)
        with ThreadPoolExecutor(_CLOSING_THREADS) as pool:
            closed = pool.map(self._close_one, logs)
            failed = {homes[tp].path for (tp, _), done in zip(logs, closed, strict=True) if not done}
        self.checkpoint_tick()
        for home in list(self._loaded):
            with contextlib.suppress(OSError):
                if home.path not in failed:
                    home.mark_clean_shutdown(broker_epoch)
        self._unlock()

    def _close_one(self, item: tuple[TopicPartition, Log]) -> bool:
        """Whether nothing is left to do at the next start."""
        tp, each = item
        try:
            each.close()
        except (OSError, LogError) as error:
            log.error("%s: could not be closed: %s", tp, error)
            each.release()
            return False
        return True

    def _unlock(self) -> None:
        for home in list(self._dirs):
            home.close()


def _rename(path: str, new: str) -> str:
    os.rename(path, new)
    return new


def _say_stray(tp: TopicPartition, path: str) -> None:
    log.warning(
        "%s: its log is of an earlier topic with this name, it is kept as %s until you remove it", tp, path
    )


_CLOSING_THREADS = 16
"""Closing is waiting for fdatasync; the file system serves many of them with one commit."""
_CHECKPOINTS = (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS, checkpoints.HIGH_WATERMARKS)
