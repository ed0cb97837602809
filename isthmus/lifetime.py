"""Ties this process to the one that started it, when that one asks for it (`ISTHMUS_PARENT`).

Linux only: the kernel then sends SIGKILL when the parent dies, however it dies. Elsewhere nothing happens.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PARENT_VARIABLE = "ISTHMUS_PARENT"
_PR_SET_PDEATHSIG = 1


def follow_parent() -> None:
    """Must run in the main thread, before anything else is started."""
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if not parent or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit(1)  # it died between the fork and here
