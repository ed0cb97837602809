"""Processes whose wall clock a test moves, and whose disk it slows down (see `clock_shim.c`).

The shim is compiled when a test asks for it; without a C compiler the test is skipped. It is loaded into
processes that start inside of `loaded`, whatever they are: our broker and its cleaner, or Apache Kafka.
"""

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_suffix(".c")
_STATE = struct.Struct("=qq")


class ClockShim:
    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("no C compiler on PATH: clocks of processes cannot be moved")
        self._library = directory / "clock_shim.so"
        subprocess.run(
            [compiler, "-O2", "-shared", "-fPIC", "-o", str(self._library), str(_SOURCE), "-ldl"], check=True
        )
        self._state = directory / "clock_shim.state"
        self._state.write_bytes(_STATE.pack(0, 0))

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Processes that are started meanwhile have it, and their children."""
        mine = {"LD_PRELOAD": str(self._library), "CLOCK_SHIM": str(self._state)}
        before = {name: os.environ.get(name) for name in mine}
        os.environ.update(mine)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def set(self, *, ahead_s: float = 0, sync_s: float = 0) -> None:
        """The wall clock is `ahead_s` ahead of the machine's from now on, a sync takes `sync_s` longer."""
        with self._state.open("r+b") as file:
            file.write(_STATE.pack(int(ahead_s * 1e9), int(sync_s * 1e9)))
