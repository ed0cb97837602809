"""Descriptors and small files: the few ways in which the log touches the disk.

`OpenFile` closes itself when the last user lets go of it, so a segment may be deleted while a reader in a
thread is still inside it. Small text files are replaced as a whole (written aside, synced, renamed), so a
crash leaves the old or the new one. Nothing here knows what is in a file.
"""

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from broker.log.disk_errors import FAILED
from broker.log.errors import NotCached

_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_FALLOC_FL_KEEP_SIZE = 1


class OpenFile:
    """An open descriptor; closed by `close` or when nothing refers to it any more."""

    __slots__ = ("at_random", "fd")

    def __init__(self, path: str, *, create: bool = False) -> None:
        self.fd = -1
        self.at_random = False
        """Whether the kernel was told so (`page_cache.read_at_random`)."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        self.fd = os.open(path, flags, 0o644)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; waits for the disk. Short only at the end of the file."""
        data = os.pread(self.fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        have = len(data)
        while have < size:
            data = os.pread(self.fd, size - have, position + have)
            if not data:
                break
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def read_cached(self, position: int, size: int) -> memoryview:
        """What of the range the page cache holds, from its start; never waits. Raises `NotCached` for
        nothing.
        """
        buffer = bytearray(size)
        try:
            have = os.preadv(self.fd, [buffer], position, _RWF_NOWAIT)
        except BlockingIOError:
            raise NotCached from None
        except OSError as error:
            if error.errno not in (95, 22):  # EOPNOTSUPP, EINVAL: this file system has no such read
                raise
            have = os.preadv(self.fd, [buffer], position)
        return memoryview(buffer)[:have]

    def write(self, data: memoryview, position: int) -> None:
        """Write all of `data` at `position`, into the page cache."""
        done = os.pwrite(self.fd, data, position)
        while done < len(data):
            done += os.pwrite(self.fd, data[done:], position + done)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def allocate(self, size: int) -> bool:
        """Reserve blocks for `size` bytes without changing the file's size, until the next `truncate`.

        False where the file system cannot, or has not got so much room.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        if not libc.fallocate(self.fd, _FALLOC_FL_KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size)):
            return True
        self.truncate(self.size())  # what it took before it found too little
        return False

    def sync(self) -> None:
        """Get all that was written onto the disk. Raises OSError of a disk that has failed."""
        _synced(os.fdatasync, self.fd)


def _synced(sync: Callable[[int], None], fd: int) -> None:
    """The kernel says once that it could not write, and forgets what that was: another try would succeed and
    mean nothing. So this is a failed disk, also where the reason is that there was no room (thin volumes,
    quotas of network file systems).
    """
    try:
        sync(fd)
    except OSError as error:
        if error.errno in FAILED:
            raise
        raise OSError(errno.EIO, f"what was written is lost: {error.strerror}") from error


def sync_directory(path: str | Path) -> None:
    """Make renames and new files in a directory survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _synced(os.fsync, fd)
    finally:
        os.close(fd)


def replace_file(path: str, data: bytes, *, sync: bool = True) -> None:
    """Put a whole new content at `path`: a reader, or a start after a crash, sees the old or the new one.

    Without `sync` a file that is not there yet is written in place: after a crash it may be empty, as it may
    be after a power cut anyway. That spares a new partition two renames.
    """
    if not sync and _created(path, data):
        return
    aside = path + ".tmp"
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        try:
            done = 0
            while done < len(data):
                done += os.write(fd, data[done:])
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(aside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise


def _created(path: str, data: bytes) -> bool:
    """Whether the file was not there, and now is, whole. On OSError it is not there."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return False
    try:
        try:
            done = 0
            while done < len(data):
                done += os.write(fd, data[done:])
        finally:
            os.close(fd)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    return True


def sync_file(path: str) -> None:
    """fdatasync of a file that is not open here; a file that does not exist needs none."""
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _synced(os.fdatasync, fd)
        finally:
            os.close(fd)


def write_tail(path: str, data: bytes, position: int) -> int:
    """Make the file hold `data` from `position` on and nothing behind it; returns its new size."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:], position + done)
        os.ftruncate(fd, position + done)
    finally:
        os.close(fd)
    return position + done


def read_if_exists(path: str) -> bytes | None:
    """The whole file; None without one. Bare calls, because a start reads four such files per partition."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(fd).st_size
        data = os.read(fd, size + 1)
        while len(data) < size and (more := os.read(fd, size + 1 - len(data))):
            data += more
        return data
    finally:
        os.close(fd)


def remove_files(paths: Sequence[str]) -> None:
    """Unlink what is still there."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
