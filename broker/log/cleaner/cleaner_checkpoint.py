"""Up to which offset each log is compacted: `cleaner-offset-checkpoint`, one in each log directory.

Kafka's file and format. An offset belongs to one log, not to a name: a topic that was deleted and made again
starts without one. (Kafka's `LogCleanerManager.checkpoints`.)
"""

import asyncio
import logging
import os
import threading
from typing import Final

from broker.log import checkpoints
from broker.log.checkpoints import CheckpointDamaged
from broker.log.log_manager import LogManager
from broker.log.partition_log import Log
from protocol.types import TopicPartition

log = logging.getLogger("isthmus.broker.log")

CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"


class CleanerCheckpoint:
    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._offsets: dict[TopicPartition, tuple[Log, int]] = {}
        self._on_disk: dict[str, set[TopicPartition]] = {}
        """Which partitions a directory's file names."""
        self._writing = threading.Lock()

    def load(self) -> None:
        """Read all files. One that is damaged counts as empty: its logs are compacted from their start."""
        self._logs.before_create = self.forget
        for path in self._logs.log_dirs:
            try:
                found = checkpoints.read_offsets(f"{path}/{CLEANER_OFFSETS}")
            except CheckpointDamaged as error:
                log.warning("%s; going on as if it were empty", error)
                continue
            except OSError as error:
                log.warning("%s/%s cannot be read: %s", path, CLEANER_OFFSETS, error.strerror)
                continue
            self._on_disk[path] = set(found)
            for tp, offset in found.items():
                each = self._logs.get(tp)
                if each is not None and self._logs.log_dir(tp) == path:
                    self._offsets[tp] = each, offset

    def get(self, tp: TopicPartition, each: Log) -> int | None:
        owner, offset = self._offsets.get(tp, (None, None))
        return offset if owner is each else None

    async def put(self, tp: TopicPartition, each: Log, offset: int) -> None:
        """Remember, and write the directory's file in a thread."""
        self._offsets[tp] = each, offset
        await self._write(self._logs.log_dir(tp))

    async def forget_deleted(self) -> None:
        """Take logs that are gone out of the files: after a restart others may have their names."""
        gone = {tp: each for tp, (each, _) in self._offsets.items() if self._logs.get(tp) is not each}
        for tp in gone:
            del self._offsets[tp]
        for path in {os.path.dirname(each.directory) for each in gone.values()}:
            if path in self._logs.log_dirs:
                await self._write(path)

    def forget(self, tp: TopicPartition, path: str) -> None:
        """A log of this name is about to be made in the directory: the offset of an earlier one is not its.

        Waits for the disk, as a crash may follow at once, but only where the file names it. Raises OSError.
        """
        if tp in self._on_disk.get(path, ()):
            self._write_file(path)

    async def _write(self, path: str) -> None:
        file = f"{path}/{CLEANER_OFFSETS}"
        try:
            await asyncio.to_thread(self._write_file, path)
        except OSError as error:
            log.warning("%s not written: %s", file, error.strerror)
            self._logs.storage_failed(file, error)

    def _write_file(self, path: str) -> None:
        """Write what is known now. Runs in any thread; what others know later is written after it."""
        with self._writing:
            offsets = {
                known: at
                for known, (owner, at) in list(self._offsets.items())
                if os.path.dirname(owner.directory) == path and self._logs.get(known) is owner
            }
            checkpoints.write_offsets(f"{path}/{CLEANER_OFFSETS}", offsets)
            self._on_disk[path] = set(offsets)
