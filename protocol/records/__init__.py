"""Record batches, format v2: headers, records, compression, building.

`header` moves batches as opaque bytes; `reading` and `building` are for the few places that need records.
"""

from protocol.records.header import (
    HEADER_SIZE,
    BatchHeader,
    UnsupportedMagicError,
    assign_offsets,
    check_crc,
    complete_end,
    iter_headers,
    read_header,
    set_log_append_time,
    set_producer,
)

__all__ = [
    "HEADER_SIZE",
    "BatchHeader",
    "UnsupportedMagicError",
    "assign_offsets",
    "check_crc",
    "complete_end",
    "iter_headers",
    "read_header",
    "set_log_append_time",
    "set_producer",
]
