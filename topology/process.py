"""One supervised process: start, ready line, output file, end. Knows nothing about topologies.

A child is told its parent's pid (`ISTHMUS_PARENT`) and asks the kernel to be killed when that process
dies, so that even a killed supervisor leaves nothing behind. Children get their own session: a Ctrl-C is for
the supervisor, which then ends them in order.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

READY = re.compile(rb"^isthmus .*\bready\b", re.MULTILINE)
PARENT_VARIABLE = "ISTHMUS_PARENT"


class State(StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


class ProcessFailed(Exception):
    """The process ended or did not become ready; the message has the last lines of its output."""


class SupervisedProcess:
    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self.state = State.STOPPED
        self._command = tuple(command)
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        return self._popen.pid if self._popen is not None and self._popen.poll() is None else None

    def exit_code(self) -> int | None:
        """None while it runs or when it never ran."""
        return self._popen.poll() if self._popen is not None else None

    def spawn(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._log_start = output.tell()
            self._popen = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, PARENT_VARIABLE: str(os.getpid()), "PYTHONUNBUFFERED": "1"},
            )
        self.state = State.STARTING

    async def wait_ready(self, timeout_s: float) -> None:
        """Raises ProcessFailed when it ends first or the time is over (it is then still running)."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while not READY.search(self._output()):
            code = self.exit_code()
            if code is not None:
                self.state = State.FAILED
                raise ProcessFailed(
                    f"{self.name} ended with exit code {code} before it was ready\n{self.tail()}"
                )
            if loop.time() >= end:
                raise ProcessFailed(f"{self.name} was not ready within {timeout_s:g} s\n{self.tail()}")
            await asyncio.sleep(0.05)
        self.state = State.READY

    def signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            os.kill(self.pid, number)

    async def stop(self, grace_s: float = 30.0) -> None:
        """SIGTERM, then SIGKILL after the grace time: a broker hands over and closes its logs in it."""
        self.signal(signal.SIGTERM)
        if not await self._gone(grace_s):
            await self.kill()
        self.state = State.STOPPED

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self._gone(10.0)
        self.state = State.STOPPED

    def tail(self, lines: int = 8) -> str:
        """The last lines of this start's output, indented, with the file's name."""
        text = self._output().decode(errors="replace").splitlines()[-lines:]
        return "\n".join([f"  last lines of {self.log}:", *(f"    {line}" for line in text)])

    async def _gone(self, timeout_s: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while self.pid is not None:
            if loop.time() >= end:
                return False
            await asyncio.sleep(0.02)
        return True

    def _output(self) -> bytes:
        try:
            with self.log.open("rb") as output:
                output.seek(self._log_start)
                return output.read()
        except FileNotFoundError:
            return b""
