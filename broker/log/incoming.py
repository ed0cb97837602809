"""What is checked of record batches before they are stored (Kafka's LogValidator and UnifiedLog.append).

Only headers and checksums are looked at; records are decoded where Kafka's rules need them: a keyless
record on a compacted topic, a lower limit for timestamps, and to name the offenders after a header has
shown that there are some. Nothing is changed here, and nothing is known about offsets already in the log.
"""

from enum import IntEnum

from crc32c import crc32c

from broker.log.config import NO_LIMIT_MS, LogConfig
from broker.log.errors import AppendRefused
from protocol.errors import DecodeError, ErrorCode
from protocol.records import BatchHeader, UnsupportedMagicError, read_header, read_records
from protocol.records.header import CODEC_MASK, CONTROL, CRC_START, LENGTH_OVERHEAD, LOG_APPEND_TIME

_MAX_CODEC = 4
_NO_TIMESTAMP = -1


class Origin(IntEnum):
    CLIENT = 0
    COORDINATOR = 1
    """The broker itself: may write control batches."""
    REPLICATION = 2
    """A follower's copy: offsets and epochs are kept, and the leader has checked everything else."""


Batches = list[tuple[int, BatchHeader]]
"""(position, header) of each batch in the buffer."""


def read_batches(where: str, view: memoryview, config: LogConfig, origin: Origin) -> Batches:
    """Headers of all batches, each whole, of format v2, with the right checksum and not too large.

    Raises `AppendRefused`.
    """
    found: Batches = []
    pos, end = 0, len(view)
    while pos < end:
        try:
            header = read_header(view, pos)
        except UnsupportedMagicError as error:
            raise AppendRefused(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"{where}: {error}") from None
        except DecodeError as error:
            raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"{where}: {error}") from None
        stop = pos + header.batch_length + LENGTH_OVERHEAD
        if stop > end:
            raise AppendRefused(
                ErrorCode.CORRUPT_MESSAGE,
                f"{where}: the batch at byte {pos} is cut short by {stop - end} bytes",
            )
        if stop - pos > config.max_message_bytes and origin != Origin.REPLICATION:
            raise AppendRefused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{where}: a batch of {stop - pos} bytes is above"
                f" max.message.bytes={config.max_message_bytes}",
            )
        if crc32c(view[pos + CRC_START : stop]) != header.crc:
            raise AppendRefused(
                ErrorCode.CORRUPT_MESSAGE, f"{where}: the batch at byte {pos} has a wrong checksum"
            )
        found.append((pos, header))
        pos = stop
    if not found:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"{where}: no record batch was sent")
    return found


def check_batches(
    where: str, view: memoryview, batches: Batches, config: LogConfig, origin: Origin, now_ms: int
) -> None:
    """Rules for what producers may send; raises `AppendRefused`."""
    append_time = config.log_append_time
    latest = NO_LIMIT_MS if append_time else now_ms + config.message_timestamp_after_max_ms
    by_record = config.compacts or (not append_time and config.message_timestamp_before_max_ms != NO_LIMIT_MS)
    for pos, header in batches:
        _check_header(where, header, origin)
        if header.attributes & LOG_APPEND_TIME and not append_time and origin == Origin.CLIENT:
            raise AppendRefused(
                ErrorCode.INVALID_TIMESTAMP,
                f"{where}: the batch says LogAppendTime, which producers must not set",
            )
        if (by_record and not header.attributes & CONTROL) or header.max_timestamp > latest:
            _check_records(where, view, pos, header, config, now_ms)


def _check_header(where: str, header: BatchHeader, origin: Origin) -> None:
    wrong = None
    if header.record_count != header.last_offset_delta + 1 or not header.record_count:
        wrong = f"holds {header.record_count} records, but offsets 0..{header.last_offset_delta}"
    elif header.attributes & CODEC_MASK > _MAX_CODEC:
        wrong = f"has the unknown codec {header.codec}"
    elif header.producer_id >= 0 and header.base_sequence < 0 and not header.attributes & CONTROL:
        wrong = f"of producer {header.producer_id} has the sequence {header.base_sequence}"
    elif origin == Origin.CLIENT:
        if header.base_offset:
            wrong = f"has base offset {header.base_offset}, a producer must send 0"
        elif header.attributes & CONTROL:
            wrong = "is a control batch, which only brokers write"
    if wrong is not None:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"{where}: the batch {wrong}")


def _check_records(
    where: str, view: memoryview, pos: int, header: BatchHeader, config: LogConfig, now_ms: int
) -> None:
    """Look at every record and name all offenders (KIP-467)."""
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    check_time = not config.log_append_time
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    try:
        for index, record in enumerate(read_records(view, pos, header)):
            if record.key is None and config.compacts:
                errors.append((index, "a compacted topic takes no record without a key"))
            elif (
                check_time
                and record.timestamp != _NO_TIMESTAMP
                and not earliest <= record.timestamp <= latest
            ):
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append((index, f"timestamp {record.timestamp} is outside {earliest}..{latest}"))
    except DecodeError as error:
        raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"{where}: {error}") from None
    if not errors and check_time and header.max_timestamp > latest:
        raise AppendRefused(
            ErrorCode.INVALID_TIMESTAMP,
            f"{where}: the batch says that its latest timestamp is {header.max_timestamp},"
            f" the limit is {latest}",
        )
    if errors:
        raise AppendRefused(code, f"{where}: {len(errors)} records of the batch are not acceptable", errors)
