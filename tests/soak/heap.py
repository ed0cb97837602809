"""What a process has allocated, told by itself: malloc's heap and Python's small blocks, in a file.

Resident memory alone does not tell a leak from room that malloc keeps after a busy moment. Runs inside the
broker: `inside` makes a folder for PYTHONPATH whose `sitecustomize` starts a thread here. Only glibc tells;
elsewhere nothing is written.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

EVERY_S = 2.0
_FILE = "ISTHMUS_SOAK_HEAP"
_ROOT = Path(__file__).parents[2]


class Heap(NamedTuple):
    """In use and free: MB of malloc's arenas and of blocks that are mapped by themselves."""

    at: float
    used_mb: float
    free_mb: float
    blocks: int
    """Small objects of Python; 64 bytes each, more or less."""


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks"),
            "keepcost",
        )
    ]


def inside(folder: Path) -> Mapping[str, str]:
    """The environment of a Python process that shall tell of its heap; `read` reads what it says."""
    folder.mkdir()
    code = "import sys\nif 'broker' in sys.orig_argv:\n    from tests.soak import heap\n    heap.start()\n"
    (folder / "sitecustomize.py").write_text(code)
    path = os.pathsep.join([str(folder), str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, _FILE: str(folder / "heap")}


def read(folder: Path) -> list[Heap]:
    path = folder / "heap"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [line.split() for line in lines]
    return [Heap(float(row[0]), float(row[1]), float(row[2]), int(row[3])) for row in rows if len(row) == 4]


def start() -> None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return
    library.mallinfo2.restype = _Mallinfo2
    threading.Thread(target=_tell, args=(library,), name="soak-heap", daemon=True).start()


def _tell(library: ctypes.CDLL) -> None:
    with open(os.environ[_FILE], "a", buffering=1) as file:
        while True:
            found = library.mallinfo2()
            used, free = (found.uordblks + found.hblkhd) / 1e6, found.fordblks / 1e6
            file.write(f"{time.monotonic():.1f} {used:.3f} {free:.3f} {sys.getallocatedblocks()}\n")
            time.sleep(EVERY_S)
