"""Walking a segment file batch by batch, for recovery, rebuilding indexes and finding a batch.

Reads forward in windows and never holds more than one window or one batch. Whether a batch is any good is
decided here (`sound_batches`); what to do about a bad one is the caller's business.
"""

from collections.abc import Iterator
from typing import Final

from broker.log.files import OpenFile
from protocol.errors import DecodeError
from protocol.records import HEADER_SIZE, BatchHeader, check_crc, read_header

_WINDOW: Final = 1 << 20


def headers(file: OpenFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch in `position..end`; stops before what does not read as one.

    Bodies are skipped, so a walk over large batches reads little.
    """
    window = b""
    start = position
    reach = 4096  # small first: most walks end after a batch or two
    while position + HEADER_SIZE <= end:
        at = position - start
        if at + HEADER_SIZE > len(window):
            start, at = position, 0
            window = file.read(position, min(reach, end - position))
            reach = min(reach * 4, _WINDOW)
            if len(window) < HEADER_SIZE:
                return
        try:
            header = read_header(window, at)
        except DecodeError:
            return
        if position + header.size > end:
            return
        yield position, header
        position += header.size


def sound_batches(
    file: OpenFile, position: int, end: int, next_offset: int, highest_offset: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, bytes) of each batch whose checksum holds, with offsets that rise from
    `next_offset`.

    Stops at the first that is torn, damaged or out of order: from there on the file is worth nothing.
    """
    start = position
    window = memoryview(b"")
    while position + HEADER_SIZE <= end:
        at = position - start
        if at + HEADER_SIZE > len(window):
            start, at = position, 0
            window = memoryview(file.read(position, min(_WINDOW, end - position)))
        try:
            header = read_header(window, at)
        except DecodeError:
            return
        if position + header.size > end:
            return
        if header.base_offset < next_offset or header.last_offset > highest_offset:
            return  # the checksum does not cover the base offset
        if at + header.size > len(window):
            start, at = position, 0
            window = memoryview(file.read(position, min(max(_WINDOW, header.size), end - position)))
        if at + header.size > len(window) or not check_crc(window, at, header):
            return
        yield position, header, window[at : at + header.size]
        position += header.size
        next_offset = header.next_offset
