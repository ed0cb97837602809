"""What is checked of record batches before they are stored (Kafka's LogValidator and UnifiedLog.append).

Only headers and checksums are looked at; records are decoded where Kafka's rules need them: a keyless
record on a compacted topic, a lower limit for timestamps, and to name the offenders once a header has shown
that there are some. Nothing is changed here, and nothing is known about offsets already in the log.

The usual case, one plain batch, does not come here (`ordinary_append`): all refusals do.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from crc32c import crc32c

from broker.log.config import NO_LIMIT_MS, LogConfig
from broker.log.errors import AppendRefused
from protocol.errors import DecodeError, ErrorCode
from protocol.records import (
    BatchHeader,
    ImpossibleCountError,
    UnsupportedMagicError,
    read_header,
    read_records,
)
from protocol.records.header import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
)

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


@dataclass(frozen=True, slots=True)
class AppendRules:
    """What a topic's settings mean for appends, worked out once."""

    max_batch_bytes: int
    append_time: bool
    """The broker stamps records; their own timestamps do not matter."""
    ahead_ms: int
    behind_ms: int
    """How far record timestamps may be off the clock."""
    keyed: bool
    """Every record needs a key."""
    every_record: bool
    """A header is not enough to tell whether a batch is acceptable."""
    ordinary_bytes: int
    """Size up to which a batch may be an ordinary one; 0 where each is checked record by record, stamped,
    flushed, refused, or may need another codec.
    """

    @classmethod
    def of(cls, config: LogConfig) -> "AppendRules":
        append_time = config.log_append_time
        behind = NO_LIMIT_MS if append_time else config.message_timestamp_before_max_ms
        every_record = config.compacts or behind != NO_LIMIT_MS
        closer_look = (
            every_record
            or append_time
            or config.compression_type != "producer"
            or config.flush_messages != NO_LIMIT_MS
            or config.is_mirror
        )
        return cls(
            max_batch_bytes=config.max_message_bytes,
            append_time=append_time,
            ahead_ms=NO_LIMIT_MS if append_time else config.message_timestamp_after_max_ms,
            behind_ms=behind,
            keyed=config.compacts,
            every_record=every_record,
            ordinary_bytes=0 if closer_look else config.max_message_bytes,
        )


def read_batches(where: str, view: memoryview, rules: AppendRules, origin: Origin) -> Batches:
    """Headers of all batches, each whole, of format v2, with the right checksum and not too large.

    Raises `AppendRefused`.
    """
    found: Batches = []
    pos, end = 0, len(view)
    while pos < end:
        impossible = None
        try:
            header = read_header(view, pos)
        except ImpossibleCountError as error:
            header, impossible = error.header, error
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
        if stop - pos > rules.max_batch_bytes and origin != Origin.REPLICATION:
            raise AppendRefused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{where}: a batch of {stop - pos} bytes is above max.message.bytes={rules.max_batch_bytes}",
            )
        if crc32c(view[pos + CRC_START : stop]) != header.crc:
            raise AppendRefused(
                ErrorCode.CORRUPT_MESSAGE, f"{where}: the batch at byte {pos} has a wrong checksum"
            )
        if impossible is not None:  # only a batch that says so itself, with the right checksum
            raise AppendRefused(ErrorCode.INVALID_RECORD, f"{where}: {impossible}")
        found.append((pos, header))
        pos = stop
    if not found:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"{where}: no record batch was sent")
    return found


def check_batches(
    where: str, view: memoryview, batches: Batches, rules: AppendRules, origin: Origin, now_ms: int
) -> None:
    """Rules for what producers may send; raises `AppendRefused`."""
    for pos, header in batches:
        _check_header(where, header, origin)
        if header.attributes & LOG_APPEND_TIME and not rules.append_time and origin == Origin.CLIENT:
            raise AppendRefused(
                ErrorCode.INVALID_TIMESTAMP,
                f"{where}: the batch says LogAppendTime, which producers must not set",
            )
        in_time = header.max_timestamp <= now_ms + rules.ahead_ms
        if not in_time or (rules.every_record and not header.attributes & CONTROL):
            _check_records(where, view, pos, header, rules, now_ms)


def check_copies(where: str, batches: Batches, log_end: int) -> int:
    """A leader's batches go on at the log end, maybe over holes that compaction left; returns the new end.

    Raises `AppendRefused`.
    """
    for _, header in batches:
        if header.base_offset < log_end:
            raise AppendRefused(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{where}: a copied batch begins at offset {header.base_offset},"
                f" but the log is at {log_end} already",
            )
        log_end = header.next_offset
    return log_end


def copy_runs(batches: Batches, most_bytes: int) -> Iterator[Batches]:
    """Batches that a follower writes with one call: as many as fit into a segment, each marker alone.

    An aborting marker's index entry must be there before the marker is.
    """
    run: Batches = []
    size = 0
    for item in batches:
        header = item[1]
        control = bool(header.attributes & CONTROL)
        if run and (control or run[-1][1].attributes & CONTROL or size + header.size > most_bytes):
            yield run
            run, size = [], 0
        run.append(item)
        size += header.size
    if run:
        yield run


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
    where: str, view: memoryview, pos: int, header: BatchHeader, rules: AppendRules, now_ms: int
) -> None:
    """Look at every record and name all offenders (KIP-467)."""
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    latest, earliest = now_ms + rules.ahead_ms, now_ms - rules.behind_ms
    try:
        for index, record in enumerate(read_records(view, pos, header)):
            if rules.keyed and record.key is None:
                errors.append((index, "a compacted topic takes no record without a key"))
            elif record.timestamp != _NO_TIMESTAMP and not earliest <= record.timestamp <= latest:
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append((index, f"timestamp {record.timestamp} is outside {earliest}..{latest}"))
    except DecodeError as error:
        raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"{where}: {error}") from None
    if errors:
        raise AppendRefused(code, f"{where}: {len(errors)} records of the batch are not acceptable", errors)
    if header.max_timestamp > latest:
        raise AppendRefused(
            ErrorCode.INVALID_TIMESTAMP,
            f"{where}: the batch says that its latest timestamp is {header.max_timestamp},"
            f" the limit is {latest}",
        )
