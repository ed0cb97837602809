"""Reading positions of a cluster's partitions: what to ask for next, and what an answer means.

Owns plain state and the reading of Fetch answers; it must not know connections or tasks. Positions move
only over whole batches. The epoch of the last batch goes with each request, so that a leader whose log was
truncated below the position says so instead of serving other records (KIP-320, diverging epoch in Fetch
v12).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from enum import Enum
from struct import Struct
from typing import Final

from protocol.errors import ErrorCode
from protocol.frames import decode_response
from protocol.messages.fetch_request import FetchRequest
from protocol.messages.fetch_response import PartitionData
from protocol.records.header import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, MAGIC_AT
from protocol.types import TopicPartition
from transfer.endpoint import AbortedTransaction, Chunk, FaultKind, SourceFault
from transfer.kafka.fetch_body import read
from transfer.kafka.reading import Reading

_log = logging.getLogger("isthmus.transfer")

_OFFSET_AND_LENGTH: Final = Struct(">qii")
_LAST_DELTA: Final = Struct(">i")
_LAST_DELTA_AT: Final = 23
_SMALLEST: Final = 26
"""Of what may stand in a log: a message of format v0 without key and value."""
_NOTHING: Final = memoryview(b"")


class Trouble(Enum):
    """What an answer without records asks for."""

    STALE = "look up leaders and topic ids again"
    OUT_OF_RANGE = "ask for the log's range"
    LATER = "ask again later"
    ELSEWHERE = "ask the replica that the leader named"


def outcomes(
    version: int, frame: memoryview, asked: dict[TopicPartition, Reading]
) -> Iterator[tuple[Reading, Chunk | SourceFault | Trouble | None]]:
    """What an answer means for those who asked and still want it; moves their positions. Raises DecodeError.

    From v13 on topics are named by id only (KIP-516).
    """
    names = {reading.topic_id: reading.tp.topic for reading in asked.values()}
    quick = read(version, frame)
    if quick is not None:
        for topic, partition, high_watermark, last_stable, log_start, records in quick:
            name = topic if isinstance(topic, str) else names.get(topic, "")
            reading = asked.get(TopicPartition(name, partition))
            if reading is not None and not reading.closed:
                yield reading, took(reading, high_watermark, last_stable, log_start, records)
        return
    _, response = decode_response(frame, FetchRequest, version)
    if response.error_code:
        _log.warning("fetch: the broker answered %s", ErrorCode.of(response.error_code).name)
        yield from ((reading, Trouble.STALE) for reading in asked.values())
    for row in response.responses:
        name = row.topic or names.get(row.topic_id, "")
        for data in row.partitions:
            reading = asked.get(TopicPartition(name, data.partition_index))
            if reading is not None and not reading.closed:
                yield reading, interpret(reading, data)


def interpret(reading: Reading, data: PartitionData) -> Chunk | SourceFault | Trouble | None:
    """What one partition's answer means; moves the position. None: nothing new."""
    code = data.error_code
    if code:
        return _trouble(reading, code)
    if data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0:
        end = reading.epochs.common_end(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
        reading.attempts = 0
        return SourceFault(
            reading.tp,
            FaultKind.TRUNCATED,
            reading.position,
            min(end, reading.position),
            f"the leader's log left ours at offset {end}: records behind it were replaced",
        )
    if data.preferred_read_replica >= 0 and not data.records:  # KIP-392: it gives nothing itself
        reading.move(data.preferred_read_replica)
        return Trouble.ELSEWHERE
    return took(
        reading,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        data.records if isinstance(data.records, memoryview) else _NOTHING,
        tuple(
            AbortedTransaction(entry.producer_id, entry.first_offset)
            for entry in data.aborted_transactions or ()
        ),
    )


def took(
    reading: Reading,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    batches: memoryview,
    aborted: tuple[AbortedTransaction, ...] = (),
) -> Chunk | Trouble | None:
    """What an answer without an error means; moves the position. None: nothing new."""
    reading.high_watermark = high_watermark
    reading.last_stable_offset = last_stable_offset
    reading.log_start_offset = log_start_offset
    end, next_offset, epoch = last_batch(batches) if batches.nbytes >= _SMALLEST else (0, 0, 0)
    if end and next_offset <= reading.position:  # no broker should: what was read is not read again
        return Trouble.LATER
    reading.attempts = 0
    if not end:
        return None
    chunk = Chunk(
        reading.tp,
        batches[:end],
        reading.position,
        next_offset,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        epoch,
        aborted,
    )
    reading.position = next_offset
    if epoch != reading.last_epoch:
        reading.epochs.reached(epoch, chunk.first_offset)
        reading.last_epoch = epoch
    return chunk


def last_batch(batches: memoryview) -> tuple[int, int, int]:
    """(end of the last whole batch, the offset behind it, its leader epoch); all 0 without a whole batch."""
    last, end = last_whole(batches)
    return (end, *ends_at(batches, last, end)) if end else (0, 0, 0)


def ends_at(batches: memoryview, start: int, end: int) -> tuple[int, int]:
    """The offset behind a batch, and its leader epoch. A message of format v0 or v1 has one offset, and is
    refused by who takes it, aloud: read as a batch it would end anywhere, also before the position."""
    base, _, epoch = _OFFSET_AND_LENGTH.unpack_from(batches, start)
    if end - start < HEADER_SIZE or batches[start + MAGIC_AT] != MAGIC:
        return base + 1, -1
    (delta,) = _LAST_DELTA.unpack_from(batches, start + _LAST_DELTA_AT)
    return base + delta + 1, epoch


def last_whole(batches: memoryview) -> tuple[int, int]:
    """Where the last whole batch begins and ends, or message of an older format; 0, 0: there is none."""
    pos = last = 0
    total = batches.nbytes
    while total - pos >= _SMALLEST:
        _, length, _ = _OFFSET_AND_LENGTH.unpack_from(batches, pos)
        if length < 0 or pos + LENGTH_OVERHEAD + length > total:
            break
        last = pos
        pos += LENGTH_OVERHEAD + length
    return last, pos


_STALE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def _trouble(reading: Reading, number: int) -> Trouble | SourceFault:
    code = ErrorCode.of(number)
    if code in _STALE:
        return Trouble.STALE
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return Trouble.OUT_OF_RANGE
    if code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:
        return Trouble.LATER
    message = f"{code.name}: {code.description}"
    return SourceFault(reading.tp, FaultKind.FAILED, reading.position, reading.position, message)
