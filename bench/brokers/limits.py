"""Time for each row and for the whole run, so that a broker or a client that hangs costs one row.

The limit comes as an exception into the main thread, wherever that waits. Must run in the main thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence

ROW_S = 120.0
RUN_S = 660.0
"""A run says which rows it had no time for; unlimited where rows are asked for that take long."""


class RowFailed(Exception):
    """This row has no figures; the others go on."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises RowFailed in the body when it takes longer."""

    def overdue(number: int, frame: object) -> None:
        raise RowFailed(f"not done within {seconds:g} s")

    earlier = signal.signal(signal.SIGALRM, overdue)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


class TimeLeft:
    """Of the whole run."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def __call__(self) -> float:
        return self._until - time.monotonic()


@contextlib.contextmanager
def client(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A process with pipes for input and output; killed, with its children, when the body raises."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
