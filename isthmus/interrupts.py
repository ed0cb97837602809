"""Ctrl-C and SIGTERM from the first moment until a command handles them itself.

While modules are imported nothing has begun that would have to be ended: the process ends at once and without
a word. From then on SIGTERM does what Ctrl-C does, so that what was begun is ended in order. Imports next to
nothing, as it must be there before the rest.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


class Interrupted(BaseException):
    """A command was interrupted, and what it had begun is ended."""


def end_at_once() -> None:
    """Until `interrupt_from_now`. Signals that whoever started us has switched off (`nohup`) stay so."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def interrupt_from_now() -> None:
    """Both raise KeyboardInterrupt, or do what asyncio does then; a command's own handlers replace that."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is _end:
        signal.signal(signal.SIGTERM, _as_ctrl_c)


def code_of_interrupted() -> int:
    """After KeyboardInterrupt: 0 for what runs until it is stopped, else 130 or 143, as shells have it."""
    return _code(signal.SIGTERM if signal.getsignal(signal.SIGTERM) is _end else signal.SIGINT)


def leave() -> None:
    """The end after `Interrupted`. The usual exit waits for threads that may hang in a call; and Python
    kills itself with SIGINT where Ctrl-C came while it made a dataclass, although that was handled."""
    from contextlib import suppress

    with suppress(OSError):
        sys.stdout.flush()
    os._exit(code_of_interrupted())


def _code(number: int) -> int:
    command, words = "".join(sys.argv[1:2]), sys.argv[2:]
    serves = command in ("monitor", "probe") and any(word.startswith("--port") for word in words)
    return 0 if serves or command in ("broker", "zookeeper", "object-store") else 128 + number


def _end(number: int, _: FrameType | None) -> None:
    os._exit(_code(number))


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    signal.signal(number, _end)  # who asks again does not want to wait
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)
