"""Reading what is not in the page cache past it, into a few buffers that are used again and again.

A reader that is far behind would fill the page cache with what nobody else wants, at the cost of what others
are about to read; and on a virtual machine each fresh page may cost a wait for the host, which every thread
of the broker feels: a small producer's p99 beside such a reader fell from 3.3-5.0 to 2.4-3.3 ms. So cold
ranges are read with O_DIRECT where the file system has it. There are at most `ROOMS` buffers: what finds none
left, because slow readers hold them, or is larger than one, goes through the page cache as before. Nothing
here knows batches.
"""

from __future__ import annotations

import errno
import mmap
import os
from typing import Final

from broker.log import page_cache

ROOM: Final = 1024 * 1024 + 2 * mmap.PAGESIZE
"""A partition's share of an answer by clients' defaults (`max.partition.fetch.bytes`), with ragged ends."""
ROOMS: Final = 16
_DIRECT: Final = getattr(os, "O_DIRECT", 0)
_NOT_HERE: Final = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT)


class Rooms:
    """Buffers of `ROOM` bytes, page-aligned, made when first wanted. Threads may share it."""

    def __init__(self, most: int = ROOMS) -> None:
        self._unmade = [None] * most  # `pop` and `append` of lists are atomic
        self._free: list[mmap.mmap] = []

    def take(self) -> mmap.mmap | None:
        """None when all are in use."""
        try:
            return self._free.pop()
        except IndexError:
            pass
        try:
            self._unmade.pop()
        except IndexError:
            return None
        return mmap.mmap(-1, ROOM)

    def give_back(self, room: mmap.mmap) -> None:
        self._free.append(room)


class ColdRegion:
    """Bytes that were read for one answer; the same to the network edge as a region of a file.

    Its buffer is free again when nothing refers to it any more.
    """

    __slots__ = ("_room", "_rooms", "_start", "position", "size")

    def __init__(self, room: mmap.mmap, rooms: Rooms, start: int, size: int) -> None:
        self._room = room
        self._rooms = rooms
        self._start = start
        self.position = 0
        self.size = size

    def __del__(self) -> None:
        self._rooms.give_back(self._room)

    def __len__(self) -> int:
        return self.size

    def advance(self, count: int) -> None:
        """Forget the first `count` bytes."""
        self.position += count
        self.size -= count

    def read(self, count: int) -> bytes:
        """Up to `count` bytes from the front."""
        at = self._start + self.position
        return self._room[at : at + min(count, self.size)]

    def send(self, to: int, most: int) -> int:
        """Write up to `most` bytes to a socket; how many it took. Raises BlockingIOError for none."""
        at = self._start + self.position
        with memoryview(self._room) as room, room[at : at + min(most, self.size)] as piece:
            return os.write(to, piece)

    def failed(self, error: OSError) -> None:
        """Nothing of the disk's is left in it."""


def read(fd: int, position: int, size: int, rooms: Rooms) -> ColdRegion | None:
    """The range, read past the page cache; waits for the disk, so it is for a thread.

    None where it should be read the ordinary way: too large, half cached or not yet written to the disk, no
    buffer left, a file system without O_DIRECT. Raises OSError of a disk that fails.
    """
    begin = position - position % mmap.PAGESIZE
    end = position + size
    wanted = end - begin + -(end - begin) % mmap.PAGESIZE
    if not _DIRECT or wanted > ROOM or page_cache.is_known(fd, begin, wanted):
        return None
    room = rooms.take()
    if room is None:
        return None
    region = ColdRegion(room, rooms, position - begin, size)  # gives the room back, whatever happens
    try:
        direct = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | _DIRECT)
        try:
            with memoryview(room) as all_of_it, all_of_it[:wanted] as piece:
                got = os.preadv(direct, [piece], begin)
        finally:
            os.close(direct)
    except OSError as error:
        if error.errno in _NOT_HERE:
            return None
        raise
    return region if got >= end - begin else None
