"""Record batches: header, checksum, records of all codecs, bombs, counts that lie, and the log's own check.

Input: bytes of batches. They are read as they are, and once more with every checksum made right, so that
damage behind the checksum is reached too. Only errors of the protocol may be raised; nothing that is read
takes more memory than `LIMIT`; a batch that the log takes is read back byte for byte.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from crc32c import crc32c

from broker.log import Log, LogConfig
from broker.log.errors import AppendRefused
from protocol.errors import ProtocolError
from protocol.records import iter_headers, read_records
from protocol.records.header import CRC_START, HEADER_SIZE, complete_end
from tests.support.clock import VirtualClock

LIMIT = 1 << 20


def one(data: bytes) -> None:
    _read(data)
    mended = with_right_checksums(data)
    _read(mended)
    for compacts in (False, True):
        _append(mended, compacts)


def with_right_checksums(data: bytes) -> bytes:
    """The same bytes; where a whole batch stands, its checksum holds."""
    made = bytearray(data)
    with suppress(ProtocolError):
        for pos, header in iter_headers(data):
            crc = crc32c(memoryview(made)[pos + CRC_START : pos + header.size])
            made[pos + 17 : pos + CRC_START] = crc.to_bytes(4, "big")
    return bytes(made)


def _read(data: bytes) -> None:
    try:
        assert complete_end(data) <= len(data)
        for pos, header in iter_headers(data):
            assert HEADER_SIZE <= header.size <= len(data) - pos
            with suppress(ProtocolError):
                records = list(read_records(data, pos, header, limit=LIMIT))
                assert len(records) == header.record_count
                assert all(header.base_offset <= each.offset <= header.last_offset for each in records)
    except ProtocolError:
        return


def _append(data: bytes, compacts: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="fuzz-batches-", dir=_fast()) as name:
        directory = Path(name) / "t-0"
        directory.mkdir()
        config = LogConfig(cleanup_policy="compact") if compacts else LogConfig()
        log = Log.open(directory, config, VirtualClock())
        try:
            buffer = memoryview(bytearray(data))
            try:
                result = log.append(buffer, 0)
            except AppendRefused:
                assert log.end_offset == 0
                return
            assert result is not None
            log.high_watermark = log.end_offset
            stored = b"".join(log.read_blocking(0, 1 << 30).segments)
            assert stored == bytes(buffer), "what was stored is not what is read"
        finally:
            log.release()


def _fast() -> str | None:
    """Memory, where there is a file system in it."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
