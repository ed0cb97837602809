"""Periodic work on all logs of a broker: retention, flushing, checkpoints, unlinking.

Has no threads and no timers of its own: the caller runs the `*_tick` methods, `retention_tick` on the thread
that owns the logs, the others wherever waiting for the disk does no harm. One partition's trouble is not the
others' (I10); what a disk refuses goes to `storage_failed`, and an operator reads it once for each directory,
not once for each partition and interval.
"""

import logging
import shutil
from collections import defaultdict
from typing import Any

from broker.log import checkpoints, retention
from broker.log.complaints import Complaints
from broker.log.errors import LogError
from broker.log.log_dir import LogDir
from broker.log.log_table import LogTable
from broker.log.partition_log import Log
from protocol.types import TopicPartition

log = logging.getLogger("isthmus.broker.log")


class LogUpkeep(LogTable):
    def __init__(self) -> None:
        super().__init__()
        self._condemned: list[tuple[int, str]] = []
        """(due ms, path) of partition directories that were renamed to be deleted."""
        self._complaints = Complaints()
        self._warned_future: set[tuple[TopicPartition, int]] = set()

    # --- retention

    def retention_tick(self, now_ms: int) -> int:
        """Delete old segments, forget quiet producers; returns the number of segments. Runs where appends
        run.
        """
        return sum(self.retain(tp, now_ms) for tp in self)

    def retain(self, tp: TopicPartition, now_ms: int) -> int:
        """`retention_tick` of one partition: with thousands of them, others get their turn in between."""
        count = 0
        each, home = self._logs.get(tp), self._home.get(tp)
        if each is not None and home is not None:
            each.producers.expire(now_ms)
            each.release_idle()
            try:
                count += each.enforce_retention(now_ms)
                self._warn_of_future(tp, each, now_ms)
                self._complaints.worked(home.path, f"retention of {tp}")
            except (OSError, LogError) as error:
                self._complaints.failed(home.path, f"retention of {tp}", error)
                if isinstance(error, OSError):
                    each.report(error)
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

    # --- the disk

    def flush_tick(self, now_ms: int) -> int:
        """Flush what `flush.ms` asks for and closed segments; returns how many logs. May run in a thread."""
        done: dict[str, int] = defaultdict(int)
        failed: dict[str, list[str]] = defaultdict(list)
        for tp, each in list(self._logs.items()):
            due = each.flush_due_ms
            rolled = each.recovery_point < each.segments.active.base_offset
            home = self._home.get(tp)
            if home is None or (not rolled and (due is None or due > now_ms)):
                continue
            try:
                each.flush()
                done[home.path] += 1
            except OSError as error:
                failed[home.path].append(f"{tp}: {error.strerror}")
                each.report(error)
        for path, reasons in failed.items():
            more = f", and {len(reasons) - 1} other partitions" if len(reasons) > 1 else ""
            self._complaints.failed(path, "flush", reasons[0] + more)
        for path in done.keys() - failed.keys():
            self._complaints.worked(path, "flush")
        return sum(done.values())

    def checkpoint_tick(self) -> None:
        """Write recovery points, log starts and high watermarks of all partitions. May run in a thread."""
        for home in list(self._loaded):
            try:
                self._write_checkpoints(home)
                self._complaints.worked(home.path, "writing checkpoints")
            except OSError as error:
                self._complaints.failed(home.path, "writing checkpoints", error.strerror)
                self.storage_failed(home.file(checkpoints.RECOVERY_POINTS), error)

    def _write_checkpoints(self, home: LogDir) -> None:
        logs = [(tp, each) for tp, each in list(self._logs.items()) if self._home.get(tp) is home]
        home.write_offsets(checkpoints.RECOVERY_POINTS, {tp: each.recovery_point for tp, each in logs})
        home.write_offsets(checkpoints.LOG_STARTS, {
            tp: each.start_offset for tp, each in logs if each.start_offset > each.segments.start
        })  # fmt: skip
        home.write_offsets(checkpoints.HIGH_WATERMARKS, {tp: each.high_watermark for tp, each in logs})

    def sweep_tick(self, now_ms: int) -> int:
        """Unlink deleted segments and partitions that are due; returns how many. May run in a thread.

        What cannot be unlinked is found again by the next start.
        """
        count = 0
        for each in list(self._logs.values()):
            try:
                count += each.segments.sweep(now_ms)
            except OSError as error:
                log.warning("%s: deleted segments cannot be unlinked: %s", each.directory, error)
                each.report(error)
        due = [item for item in list(self._condemned) if item[0] <= now_ms]
        for item in due:
            self._condemned.remove(item)  # in place: the owner may add to the list meanwhile
            shutil.rmtree(item[1], onerror=self._not_unlinked)
        return count + len(due)

    def _not_unlinked(self, function: Any, path: str, info: Any) -> None:
        error = info[1]
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            home = next((each.path for each in self._dirs if path.startswith(f"{each.path}/")), None)
            if home is not None:
                self._complaints.failed(home, "unlinking deleted partitions", error)
                self.storage_failed(f"{home}/deleted", error)
