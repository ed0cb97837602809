"""A small disk of its own for a broker's data, which can be filled up.

A file system in memory, which root may mount. Where that cannot be, there is none, and the fault that needs
it is left out aloud.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SIZE = "128m"
_PIECE = 4096


class SmallDisk:
    """Mounted at `path` from the beginning until `close`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def mounted(cls, path: Path) -> SmallDisk | None:
        """None where that is not possible."""
        path.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", str(path)]
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except FileNotFoundError:
            return None
        return None if done.returncode else cls(path)

    @contextmanager
    def full(self) -> Iterator[None]:
        filler = self._path / "filler"
        try:
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                room = os.statvfs(self._path)
                os.posix_fallocate(file.fileno(), 0, max(1, (room.f_bavail - 16) * room.f_bsize))
                file.seek(0, os.SEEK_END)
                while file.write(bytes(_PIECE)):
                    pass
            yield
        finally:
            filler.unlink(missing_ok=True)

    def close(self) -> None:
        """What it holds stays in the directory."""
        kept = self._path.with_name(f"{self._path.name}.kept")
        shutil.copytree(self._path, kept)
        subprocess.run(["umount", "-l", str(self._path)], check=True, capture_output=True)
        self._path.rmdir()
        kept.rename(self._path)
