"""Keeps compacted logs compact: chooses the dirtiest, has it cleaned, swaps the result in (KIP-58, KIP-354).

Runs on the event loop that owns the logs (Kafka's LogCleaner). All reading and writing of records is done by
the cleaner's process; here are decisions, renames, and the `cleaner-offset-checkpoint` of each log directory.
A log that cannot be cleaned is left alone until the next start, is counted, and stops no other (I10).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import NamedTuple

from broker.clock import Clock
from broker.config.server_settings import LogSettings
from broker.log.cleaner import plan
from broker.log.cleaner.cleaner_checkpoint import CleanerCheckpoint
from broker.log.cleaner.job import Done, Failed, GroupCleaned, Job, Progress
from broker.log.cleaner.partition import dirt_of, job_for, swap_in
from broker.log.cleaner.statistics import CleanerStatistics
from broker.log.cleaner.swap import SwapNotBegun, remove_unfinished
from broker.log.cleaner.worker import Worker
from broker.log.disk_errors import FULL
from broker.log.errors import LogError
from broker.log.log_manager import LogManager
from broker.log.partition_log import Log
from protocol.types import TopicPartition

log = logging.getLogger("isthmus.broker.log")


class _FullDisk(NamedTuple):
    """A log that there was no room to clean."""

    log: Log
    pause_ms: int
    again_ms: int


class LogCleaner:
    def __init__(self, logs: LogManager, clock: Clock, settings: Callable[[], LogSettings]) -> None:
        """`settings` gives those in force; call `reconfigure` when they have changed."""
        self.statistics = CleanerStatistics(clock)
        self._logs = logs
        self._clock = clock
        self._settings = settings
        self._checkpoint = CleanerCheckpoint(logs)
        self._busy: set[TopicPartition] = set()
        self._uncleanable: dict[TopicPartition, Log] = {}
        self._full: dict[TopicPartition, _FullDisk] = {}
        self._workers: list[asyncio.Task[None]] = []
        self._surplus: set[asyncio.Task[None]] = set()
        """Those that are ending because the settings want fewer."""
        self._processes: set[Worker] = set()
        self._wake = asyncio.Event()

    def start(self) -> None:
        """Logs must be loaded."""
        self._checkpoint.load()
        self.reconfigure()

    def reconfigure(self) -> None:
        """Take up changed settings; jobs that run keep theirs."""
        settings = self._settings()
        wanted = settings.log_cleaner_threads if settings.log_cleaner_enable else 0
        for surplus in self._workers[wanted:]:
            surplus.cancel()
            self._surplus.add(surplus)
            surplus.add_done_callback(self._surplus.discard)
        del self._workers[wanted:]
        while len(self._workers) < wanted:
            self._workers.append(asyncio.create_task(self._work(), name="log cleaner"))
        self._wake.set()

    async def stop(self) -> None:
        """End all jobs; what they have not finished is not used."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, *self._surplus, return_exceptions=True)
        await self._checkpoint.forget_deleted()

    @property
    def process_ids(self) -> list[int]:
        """Of the processes that are there now."""
        return [worker.pid for worker in self._processes if worker.pid is not None]

    # --- choosing

    def dirtiest(self) -> tuple[TopicPartition, Log, plan.Dirt] | None:
        """The log that needs it most of those that are due; none that is being cleaned."""
        now_ms = self._clock.now_ms()
        found: tuple[TopicPartition, Log, plan.Dirt] | None = None
        dirtiest = overdue = 0.0
        for tp in self._logs:
            each = self._logs.get(tp)
            if each is None or not self._may_clean(tp, each):
                continue
            try:
                dirt = dirt_of(each, self._checkpoint.get(tp, each), now_ms)
            except (OSError, LogError) as error:  # of this log alone
                errno = error.errno or 0 if isinstance(error, OSError) else 0
                self._failed(tp, each, Failed(message=str(error), errno=errno))
                continue
            dirtiest, overdue = max(dirtiest, dirt.ratio), max(overdue, dirt.overdue_ms)
            if dirt.due(each.config) and (found is None or dirt.ratio > found[2].ratio):
                found = tp, each, dirt
        self.statistics.looked_through(dirtiest, overdue, self._uncleanable_bytes())
        return found

    def _may_clean(self, tp: TopicPartition, each: Log) -> bool:
        return (
            each.config.compacts
            and len(each.segments) > 1
            and tp not in self._busy
            and self._uncleanable.get(tp) is not each
            and not self._waits_for_room(tp, each)
        )

    def _waits_for_room(self, tp: TopicPartition, each: Log) -> bool:
        full = self._full.get(tp)
        return full is not None and full.log is each and self._clock.now_ms() < full.again_ms

    def _uncleanable_bytes(self) -> dict[str, tuple[int, int]]:
        """Number and bytes by log directory."""
        found: dict[str, tuple[int, int]] = {}
        for tp, each in list(self._uncleanable.items()):
            if self._logs.get(tp) is not each:
                del self._uncleanable[tp]
                continue
            count, size = found.get(self._logs.log_dir(tp), (0, 0))
            found[self._logs.log_dir(tp)] = count + 1, size + each.size
        return found

    # --- cleaning

    async def _work(self) -> None:
        worker = Worker()
        self._processes.add(worker)
        try:
            while True:
                try:
                    cleaned = await self._clean_one(worker)
                except Exception:
                    log.exception("the log cleaner failed; it tries again")
                    cleaned = False
                if not cleaned:
                    await worker.kill()  # gives its memory back
                    await self._pause()
        finally:
            await worker.kill()
            self._processes.discard(worker)

    async def _pause(self) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(self._settings().log_cleaner_backoff_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _clean_one(self, worker: Worker) -> bool:
        """Whether there was something to clean and it went well."""
        await self._checkpoint.forget_deleted()
        found = self.dirtiest()
        if found is None:
            return False
        tp, each, dirt = found
        self._busy.add(tp)
        try:
            return await self._clean(worker, tp, each, dirt)
        finally:
            self._busy.discard(tp)

    async def _clean(self, worker: Worker, tp: TopicPartition, each: Log, dirt: plan.Dirt) -> bool:
        job = job_for(each, dirt, self._settings(), self._clock.now_ms())
        self.statistics.began(tp, dirt)
        log.info("%s: cleaning, %.0f %% of it is dirty", tp, dirt.ratio * 100)
        async for event in worker.run(job):
            match event:
                case Progress():
                    self.statistics.progress(tp, event)
                case GroupCleaned():
                    if not self._swap(tp, each, job, event):
                        await worker.kill()
                        with contextlib.suppress(OSError):
                            remove_unfinished(each.directory)
                        return False
                case Done():
                    await self._finished(tp, each, dirt, event)
                    return True
                case Failed():
                    self._failed(tp, each, event)
        return False

    def _swap(self, tp: TopicPartition, each: Log, job: Job, event: GroupCleaned) -> bool:
        try:
            if self._logs.get(tp) is each and swap_in(each, job, event, self._clock.now_ms()):
                return True
        except OSError as error:
            message = f"cannot swap segments: {error.strerror}"
            transient = isinstance(error, SwapNotBegun) and error.errno in FULL
            self._failed(tp, each, Failed(message=message, transient=transient, errno=error.errno or 0))
            return False
        self.statistics.failed(tp)
        log.info("%s: changed while it was cleaned, this is done again later", tp)
        return False

    async def _finished(self, tp: TopicPartition, each: Log, dirt: plan.Dirt, done: Done) -> None:
        self.statistics.finished(tp, done)
        self._full.pop(tp, None)
        log.info(
            "%s: compacted up to offset %d, %d of %d records are left, %.1f MB in %.1f s",
            tp, done.end, done.records_kept, done.records_read, done.read / 1e6, done.seconds,
        )  # fmt: skip
        if done.keyless:
            log.warning("%s: dropped %d records without a key, as a compacted log does", tp, done.keyless)
        if self._logs.get(tp) is each:
            await self._checkpoint.put(tp, each, done.end)

    def _failed(self, tp: TopicPartition, each: Log, event: Failed) -> None:
        self.statistics.failed(tp)
        if self._logs.get(tp) is not each:
            log.info("%s: was deleted while it was cleaned", tp)
            return
        if event.errno:
            each.report(OSError(event.errno, event.message))
        if event.transient and event.errno in FULL:
            self._wait_for_room(tp, each, event)
        elif event.transient:
            log.warning("%s: cleaning failed: %s; it is tried again", tp, event.message)
        else:
            log.error("%s: cannot be compacted until the next start: %s", tp, event.message)
            self._uncleanable[tp] = each

    def _wait_for_room(self, tp: TopicPartition, each: Log, event: Failed) -> None:
        """Try again, less and less often: each try may write a whole segment before it finds no room."""
        before = self._full.get(tp)
        again = before is not None and before.log is each
        pause_ms = (
            min(2 * before.pause_ms, _LONGEST_WAIT_MS) if before is not None and again else _FIRST_WAIT_MS
        )
        self._full[tp] = _FullDisk(each, pause_ms, self._clock.now_ms() + pause_ms)
        log.log(
            logging.DEBUG if again else logging.WARNING,
            "%s: no room to clean it: %s; it is tried again until there is", tp, event.message,
        )  # fmt: skip


_FIRST_WAIT_MS = 15_000
_LONGEST_WAIT_MS = 600_000
