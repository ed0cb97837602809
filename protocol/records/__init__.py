"""Record batches, format v2: headers, records, compression, building.

`header` moves batches as opaque bytes; `reading` and `building` are for the few places that need records.
"""

from protocol.records.building import build_batch
from protocol.records.compression import DEFAULT_LIMIT, Codec, compress, decompress
from protocol.records.header import (
    HEADER_SIZE,
    BatchHeader,
    ImpossibleCountError,
    UnsupportedMagicError,
    assign_offsets,
    check_crc,
    complete_end,
    iter_headers,
    read_header,
    set_log_append_time,
    set_producer,
)
from protocol.records.reading import decode_batches, read_records
from protocol.records.record import Header, Record

__all__ = [
    "DEFAULT_LIMIT",
    "HEADER_SIZE",
    "BatchHeader",
    "Codec",
    "Header",
    "ImpossibleCountError",
    "Record",
    "UnsupportedMagicError",
    "assign_offsets",
    "build_batch",
    "check_crc",
    "complete_end",
    "compress",
    "decode_batches",
    "decompress",
    "iter_headers",
    "read_header",
    "read_records",
    "set_log_append_time",
    "set_producer",
]
