"""The files of one segment: what they are called, and the descriptor of the one with the data.

Owns `<base offset>.log|.index|.timeindex|.txnindex` as names, which change while the log goes on being read:
before they are deleted, and when a cleaned segment takes the place of others. What is in the files is not
known here, but for how much of the data file is in use.
"""

import contextlib
import os
from collections.abc import Sequence

from broker.log.files import OpenFile


class SegmentFiles:
    __slots__ = ("_file", "base_offset", "directory", "preallocated", "size", "suffix")

    def __init__(self, directory: str, base_offset: int, *, size: int, suffix: str) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        """What follows the ordinary names of its files: `.cleaned` while written, `.deleted` at the end."""
        self.size = size
        """Bytes of the data file that are batches: it grows after they are there."""
        self.preallocated = False
        """Whether blocks behind its end are reserved for it (`preallocate`); its size does not show them."""
        self._file: OpenFile | None = None

    def path(self, kind: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}.{kind}{self.suffix}"

    def retire(self, kinds: Sequence[str], suffix: str) -> list[str]:
        """Rename the files, so that others may take their names; returns the new paths.

        Who reads the segment in a thread goes on with the renamed ones.
        """
        before = {kind: self.path(kind) for kind in kinds}
        self.suffix = suffix
        renamed = []
        for kind, path in before.items():
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, self.path(kind))
                renamed.append(self.path(kind))
        return renamed

    def restore(self, kinds: Sequence[str]) -> None:
        """Give the files their ordinary names back, also after a `retire` that failed in the middle."""
        suffixed = {kind: self.path(kind) for kind in kinds}
        self.suffix = ""
        for kind, path in suffixed.items():
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, self.path(kind))

    @property
    def file(self) -> OpenFile:
        file = self._file
        while file is None:
            suffix = self.suffix
            file = OpenFile(self.path("log"))
            if suffix == self.suffix:
                self._file = file
            else:  # retired in between: this may be the file that took its name
                file = None
        return file

    def release_file(self) -> None:
        """Let go of the descriptor alone; the next use opens the file again."""
        self._file = None

    def trim(self) -> None:
        """Give back what was reserved and not written. Raises OSError."""
        if self.preallocated:
            self.file.truncate(self.size)
            self.preallocated = False
