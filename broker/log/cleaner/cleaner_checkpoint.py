"""Up to which offset each log is compacted: `cleaner-offset-checkpoint`, one in each log directory.

Kafka's file and format. An offset belongs to one log, not to a name: a topic that was deleted and made again
starts without one. (Kafka's `LogCleanerManager.checkpoints`.)
"""

import asyncio
import logging
import os
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
        self._writing = asyncio.Lock()

    def load(self) -> None:
        """Read all files. One that is damaged counts as empty: its logs are compacted from their start."""
        for path in self._logs.log_dirs:
            try:
                found = checkpoints.read_offsets(f"{path}/{CLEANER_OFFSETS}")
            except CheckpointDamaged as error:
                log.warning("%s; going on as if it were empty", error)
                continue
            except OSError as error:
                log.warning("%s/%s cannot be read: %s", path, CLEANER_OFFSETS, error.strerror)
                continue
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

    async def _write(self, path: str) -> None:
        async with self._writing:
            offsets = {
                known: at
                for known, (owner, at) in self._offsets.items()
                if self._logs.get(known) is owner and self._logs.log_dir(known) == path
            }
            try:
                await asyncio.to_thread(checkpoints.write_offsets, f"{path}/{CLEANER_OFFSETS}", offsets)
            except OSError as error:
                log.warning("%s/%s not written: %s", path, CLEANER_OFFSETS, error.strerror)
