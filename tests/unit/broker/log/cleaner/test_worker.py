"""The cleaner's process is waited for by whoever ends it, also when that one is told to end meanwhile."""

import asyncio
from pathlib import Path

from broker.clock import SystemClock
from broker.config.server_settings import LogSettings
from broker.log import LogManager
from broker.log.cleaner import worker as workers
from broker.log.cleaner.log_cleaner import LogCleaner
from broker.log.cleaner.worker import Worker


async def test_a_process_is_waited_for_also_by_who_was_cancelled_while_it_waited() -> None:
    worker = Worker()
    process = worker._process = await workers._start()
    ending = asyncio.create_task(worker.kill())
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    await worker.kill()
    assert process.returncode is not None
    assert worker.pid is None


async def test_a_cleaner_that_ends_waits_for_workers_that_settings_have_ended_before(tmp_path: Path) -> None:
    logs = LogManager([tmp_path], 1, "cluster", SystemClock())
    settings = LogSettings(log_cleaner_threads=1)
    cleaner = LogCleaner(logs, SystemClock(), lambda: settings)
    cleaner.start()
    await asyncio.sleep(0)
    (worker,) = cleaner._processes
    process = worker._process = await workers._start()
    settings = LogSettings(log_cleaner_threads=0)
    cleaner.reconfigure()
    await cleaner.stop()
    assert process.returncode is not None
    logs.close()
