"""What of a file is in the page cache, and bringing there what is not.

Asking by reading a byte, and even sending what is cached, may start the kernel's own reading ahead in the
caller: with a busy disk that took the event loop up to 27 ms. So the kernel is told that files which are
served are read at random, a thread says what is wanted next, and cachestat(2) (Linux 6.5) tells what
is there without touching it; elsewhere single bytes are read (`RWF_NOWAIT`). Nothing here knows batches.
"""

import ctypes
import os
from typing import Final

AHEAD: Final = 2 * 1024 * 1024
"""Read beyond what is wanted: a reader that got this far goes on."""
_STEP: Final = 128 * 1024
"""The kernel reads ahead in steps of this size, so what is cached comes in such pieces."""
_RWF_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_UNSUPPORTED: Final = (22, 95)
_SYS_CACHESTAT: Final = 451
_PAGE: Final = os.sysconf("SC_PAGESIZE")


class _Range(ctypes.Structure):
    _fields_ = (("off", ctypes.c_uint64), ("len", ctypes.c_uint64))


class _Cachestat(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recently_evicted")
    )


def is_cached(fd: int, position: int, size: int) -> bool:
    """Whether the whole range is there; by samples where the kernel cannot tell. Never waits."""
    pages = _cached_pages(fd, position, size)
    if pages is not None:
        return pages >= (position + size - 1) // _PAGE - position // _PAGE + 1
    probe = [bytearray(1)]
    last = position + size - 1
    try:
        for at in (*range(position, last, _STEP), last):
            os.preadv(fd, probe, at, _RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    return True


def is_known(fd: int, position: int, size: int) -> bool:
    """Whether an eighth of the range is there already, so that the page cache is the way to the rest of it.

    False where the kernel cannot tell.
    """
    pages = _cached_pages(fd, position, size)
    return pages is not None and pages * _PAGE * 8 >= size


def bring(fd: int, position: int, size: int) -> None:
    """Read the range, and ask for what follows it. Waits for the disk: for a thread."""
    os.posix_fadvise(fd, position, size + AHEAD, os.POSIX_FADV_WILLNEED)
    scratch = [bytearray(min(size, _STEP))]
    for at in range(position, position + size, _STEP):
        os.preadv(fd, scratch, at)


def read_at_random(fd: int) -> None:
    """From now on the kernel reads what is asked for, and nothing of its own accord."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)


def _load() -> "ctypes._NamedFuncPointer | None":
    """The system call, if this kernel has it and lets us."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.POINTER(_Range),
        ctypes.POINTER(_Cachestat),
        ctypes.c_uint,
    )
    call.restype = ctypes.c_long
    with open("/proc/self/exe", "rb") as file:
        if call(_SYS_CACHESTAT, file.fileno(), ctypes.byref(_Range(0, _PAGE)), ctypes.byref(_Cachestat()), 0):
            return None
    return call


try:
    _CALL = _load()
except (OSError, AttributeError):
    _CALL = None


def _cached_pages(fd: int, position: int, size: int) -> int | None:
    if _CALL is None:
        return None
    found = _Cachestat()
    if _CALL(_SYS_CACHESTAT, fd, ctypes.byref(_Range(position, size)), ctypes.byref(found), 0):
        return None
    return int(found.cache)
