"""One data directory of a broker (`log.dirs`): who may use it, and how it was left.

Owns `.lock`, `meta.properties`, `.kafka_cleanshutdown` and the three offset checkpoints, and the names of
partition directories. A directory that belongs to another process, broker or cluster is refused before
anything is touched.
"""

import errno
import fcntl
import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from broker.log import checkpoints
from broker.log.checkpoints import CheckpointDamaged, MetaProperties
from broker.log.errors import LogDirError, LogDirFailed
from broker.log.files import remove_files, replace_file
from protocol.types import TopicPartition

_PARTITION: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})")
DELETED_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"


class Unchosen(NamedTuple):
    """A partition that another directory has as well, of another topic id: the controller knows best."""

    path: str
    topic_id: bytes
    offsets: Mapping[str, int]
    """By checkpoint."""


class LogDir:
    def __init__(self, path: str | Path, broker_id: int, cluster_id: str) -> None:
        """Lock the directory and check its identity; creates both when new.

        Raises `LogDirError`, and `LogDirFailed` when the disk is at fault.
        """
        self.path = str(path)
        self.hosted = 0
        """Partitions in it."""
        self.damaged: dict[TopicPartition, dict[str, int]] = {}
        """Partitions that cannot be opened, with their offsets by checkpoint, which must stay."""
        self.unchosen: dict[TopicPartition, Unchosen] = {}
        self._lock = -1
        try:
            Path(self.path).mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._check_identity(MetaProperties(broker_id, cluster_id))
            self.was_clean = os.path.exists(self.file(checkpoints.CLEAN_SHUTDOWN))
        except OSError as error:
            self.close()
            raise LogDirFailed(
                f"log directory {self.path} cannot be used: {error.strerror}; check that it is a directory"
                " that this user may read and write"
            ) from error
        except LogDirError:
            self.close()
            raise

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _take_lock(self) -> None:
        self._lock = os.open(self.file(checkpoints.LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Both kinds: a JVM takes POSIX record locks, which do not exclude a second opener in one process.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise LogDirError(
                f"log directory {self.path} is in use by another process, which holds its lock"
                f" {self.file(checkpoints.LOCK)}: stop that broker or choose another directory"
            ) from None

    def _check_identity(self, own: MetaProperties) -> None:
        path = self.file(checkpoints.META_PROPERTIES)
        try:
            found = checkpoints.read_meta_properties(path)
        except CheckpointDamaged as error:
            raise LogDirError(str(error)) from None
        if found is None:
            checkpoints.write_meta_properties(path, own)
        elif found.cluster_id != own.cluster_id:
            raise LogDirError(
                f"log directory {self.path} belongs to cluster {found.cluster_id}, but ZooKeeper says that"
                f" this is cluster {own.cluster_id}: use the directory of this cluster or an empty one"
            )
        elif found.broker_id != own.broker_id:
            raise LogDirError(
                f"log directory {self.path} belongs to broker {found.broker_id}, not to broker"
                f" {own.broker_id}: use that broker.id or another directory"
            )

    def offsets(self, name: str) -> tuple[dict[TopicPartition, int], str | None]:
        """A checkpoint's offsets; when it cannot be read, none and the reason."""
        try:
            return checkpoints.read_offsets(self.file(name)), None
        except CheckpointDamaged as error:
            return {}, str(error)

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        others = [*self.damaged.items(), *((tp, each.offsets) for tp, each in self.unchosen.items())]
        kept = {tp: known[name] for tp, known in others if name in known}
        checkpoints.write_offsets(self.file(name), {**kept, **offsets})

    def forget_clean_shutdown(self) -> None:
        """From now on a crash is a crash."""
        remove_files([self.file(checkpoints.CLEAN_SHUTDOWN)])

    def mark_clean_shutdown(self, broker_epoch: int) -> None:
        if (self.damaged or self.unchosen) and not self.was_clean:
            return  # the tails of these have still to be checked
        replace_file(self.file(checkpoints.CLEAN_SHUTDOWN), checkpoints.clean_shutdown_marker(broker_epoch))

    def partitions(self) -> dict[TopicPartition, str]:
        """Partition directories by name; others, also those on their way out, are left alone."""
        found = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                match = _PARTITION.fullmatch(entry.name)
                if match and entry.is_dir():
                    found[TopicPartition(match["topic"], int(match["partition"]))] = entry.path
        return found

    def condemned(self) -> list[str]:
        """Partition directories that were renamed to be deleted."""
        with os.scandir(self.path) as entries:
            return [e.path for e in entries if e.name.endswith(DELETED_SUFFIX) and e.is_dir()]

    def close(self) -> None:
        """Give the lock up."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def renamed(tp: TopicPartition, suffix: str) -> str:
    """Name of a partition directory that is on its way out: unique, and as long as file systems allow."""
    suffix = f".{uuid.uuid4().hex}{suffix}"
    return str(tp)[: 255 - len(suffix)] + suffix
