"""Which logs a broker has, in which directory each of them is, and which of them are out of use and why.

Owns the look-ups and what a failed directory means: it goes out of use with all its partitions, its files
stay as they are, and others are told (Kafka: `LogManager.handleLogDirFailure`, KIP-112). Must not open, make
or delete logs: that is `log_manager`.
"""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from broker.log.checkpoints import META_PROPERTIES
from broker.log.disk_errors import FAILED, GONE
from broker.log.log_dir import LogDir
from broker.log.partition_log import Log
from protocol.types import ZERO_UUID, TopicPartition

log = logging.getLogger("isthmus.broker.log")


class Offline(NamedTuple):
    """Why a partition is out of use, and of which topic it is; None where that is not known."""

    reason: str
    topic_id: bytes | None


class LogTable:
    def __init__(self) -> None:
        self._dirs: list[LogDir] = []
        self._loaded: list[LogDir] = []
        """Directories whose partitions are all known, so that their checkpoints may be replaced."""
        self._logs: dict[TopicPartition, Log] = {}
        self._home: dict[TopicPartition, LogDir] = {}
        self._topic_ids: dict[TopicPartition, bytes] = {}
        self.offline_dirs: dict[str, str] = {}
        """Why a directory is out of use, by its path."""
        self._offline: dict[TopicPartition, Offline] = {}
        self._listeners: list[Callable[[list[TopicPartition]], None]] = []
        self._failure_listeners: list[Callable[[], None]] = []
        self.run_in_owner: Callable[[Callable[[], None]], object] = lambda work: work()
        """Runs work on the thread that owns the logs: a disk's failure may show in another one."""
        self._report = self.storage_failed

    # --- look-up

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

    def dir_in_use(self, path: str) -> LogDir | None:
        return next((each for each in self._dirs if each.path == path), None)

    def _add(self, tp: TopicPartition, opened: Log, home: LogDir, topic_id: bytes | None) -> None:
        self._logs[tp] = opened
        self._home[tp] = home
        home.hosted += 1
        opened.storage_failed = self._report
        if topic_id is not None:
            self._topic_ids[tp] = topic_id

    def _remove(self, tp: TopicPartition) -> None:
        del self._logs[tp]
        self._home.pop(tp).hosted -= 1
        self._topic_ids.pop(tp, None)

    # --- out of use

    def is_offline(self, tp: TopicPartition) -> bool:
        """Whether the partition is here, but on a disk that failed, or damaged."""
        return tp in self._offline

    def on_offline(self, callback: Callable[[list[TopicPartition]], None]) -> None:
        """`callback(partitions)` runs when a directory has failed, on the thread that owns the logs."""
        self._listeners.append(callback)

    def on_failure(self, callback: Callable[[], None]) -> None:
        """`callback()` runs after those of `on_offline`, also when an empty directory has failed."""
        self._failure_listeners.append(callback)

    def _why_offline(self, tp: TopicPartition, topic_id: bytes, *, is_new: bool) -> str | None:
        """Why the partition must not be made here, if so.

        One that is not new may be on a directory that failed. A topic with another id than the one that is
        out of use was made anew under the name: what is left of the earlier one does not concern it.
        """
        known = self._offline.get(tp)
        if known is not None and topic_id != ZERO_UUID and known.topic_id not in (None, topic_id):
            del self._offline[tp]
            known = None
        if known is None and self.offline_dirs and not is_new:
            wanted = None if topic_id == ZERO_UUID else topic_id
            known = self._offline[tp] = Offline(f"it may be in {', '.join(self.offline_dirs)}", wanted)
        return None if known is None else known.reason

    def fail_dir(self, path: str, reason: str) -> None:
        """Take a directory out of use, and all partitions in it. Its files are left as they are."""
        home = self.dir_in_use(path)
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
        home.close()
        self._take_offline(gone, reason)

    def _take_offline(self, partitions: list[TopicPartition], reason: str) -> None:
        gone = [tp for tp in partitions if tp in self._logs]  # another thread may have seen the failure too
        for tp in gone:
            self._offline[tp] = Offline(reason, self._topic_ids.get(tp))
            self._logs[tp].release()
            self._remove(tp)
        for callback in self._listeners:
            callback(gone)
        for tell in self._failure_listeners:
            tell()

    def storage_failed(self, directory: str, error: OSError) -> None:
        """A disk refused something in this partition's directory. May run in any thread.

        A full one does so until there is room, and is not taken out of use.
        """
        if error.errno in FAILED | GONE:
            self.run_in_owner(lambda: self._fail_if_so(directory, error))

    def _fail_if_so(self, directory: str, error: OSError) -> None:
        """A thread may miss a file because its owner deleted or renamed it: that is no failure of a disk.

        Nor is it one when somebody took a single partition's directory away. An empty directory in the place
        of ours is a disk that is not mounted any more.
        """
        path = os.path.dirname(directory)
        reason = f"{directory}: {error.strerror}"
        if error.errno == errno.ENOENT and os.path.exists(f"{path}/{META_PROPERTIES}"):
            if os.path.isdir(directory):
                return
            gone = [tp for tp, each in list(self._logs.items()) if each.directory == directory]
            if gone:
                log.error("%s: its directory is gone, other partitions are not affected: %s", gone[0], reason)
                self._take_offline(gone, reason)
            return
        self.fail_dir(path, reason)
