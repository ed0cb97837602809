"""The broker's end of the cleaner's process: starts it when there is a job, reads what it reports.

The process may end at any time, by itself or by somebody's hand; that fails the job and nothing else. Must
not know what jobs mean.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from broker.log.cleaner.job import Done, Event, Failed, Job, decode_event

_MODULE = "broker.log.cleaner.process"
_ROOT = Path(__file__).parents[3]


class Worker:
    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    async def run(self, job: Job) -> AsyncIterator[Event]:
        """What the process reports of the job; the last event is `Done` or `Failed`. Raises OSError."""
        process = self._process
        if process is not None and process.returncode is not None:
            await self.kill()
            process = None
        if process is None:
            process = self._process = await _start()
        assert process.stdin is not None
        assert process.stdout is not None
        event: Event | None = None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(job.encode())
            await process.stdin.drain()
            while not isinstance(event, Done | Failed):
                line = await process.stdout.readline()
                if not line.endswith(b"\n"):
                    break
                event = decode_event(line)
                yield event
        if not isinstance(event, Done | Failed):
            await self.kill()
            yield Failed(message="the cleaner's process ended in the middle of it", transient=True)

    async def kill(self) -> None:
        """End the process at once; what it has not reported as done is worth nothing. It stays ours until it
        is gone: who is cancelled while it waits for that calls this again."""
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            # To the end of its output: the transport closes only then.
            with contextlib.suppress(ConnectionError):
                await process.communicate()
            self._process = None


async def _start() -> asyncio.subprocess.Process:
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", _MODULE,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
