"""Format `avro`: one record per row in an Avro object container file, for Spark and any other Avro reader.

Owns the envelope. Null and empty keys and values are different values; headers keep order and repetition.
Restoring builds new batches from the rows; offsets are those of the source, so holes stay visible.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import Any, Final

import fastavro
from fastavro.write import Writer

from connectors.errors import DamagedBackup
from connectors.formats import StoredBatch
from protocol.errors import DecodeError
from protocol.records.building import build_batch
from protocol.records.compression import Codec
from protocol.records.reading import read_records
from protocol.records.record import Record
from protocol.types import Buffer

SUFFIX = "avro"
BLOCK_BYTES = 256 * 1024
BATCH_BYTES = 512 * 1024
"""What a restored batch of several records may hold; well below every broker's default limit."""
BATCH_RECORDS = 10_000
BATCH_SPAN = 2**31 - 1
"""Offset deltas inside a batch are 32 bits; a compacted source may have larger holes."""

SCHEMA: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Record",
        "namespace": "isthmus.backup.v1",
        "fields": [
            {"name": "key", "type": ["null", "bytes"]},
            {"name": "value", "type": ["null", "bytes"]},
            {
                "name": "headers",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Header",
                        "fields": [
                            {"name": "name", "type": "string"},
                            {"name": "value", "type": ["null", "bytes"]},
                        ],
                    },
                },
            },
            {"name": "timestamp", "type": "long", "doc": "milliseconds since 1970; -1 = none"},
            {"name": "timestamp_type", "type": "int", "doc": "0 = CreateTime, 1 = LogAppendTime"},
            {"name": "offset", "type": "long"},
            {"name": "partition", "type": "int"},
            {"name": "leader_epoch", "type": "int"},
        ],
    }
)


class AvroEncoder:
    """Rows of one object of `partition`; `codec` is Avro's name of the block compression.

    The marker between blocks is derived from the object's name, so that the same rows give the same bytes.
    """

    def __init__(self, key: str, partition: int, codec: str) -> None:
        self._partition = partition
        self._file = io.BytesIO()
        marker = hashlib.sha256(key.encode()).digest()[:16]
        self._writer = Writer(self._file, SCHEMA, codec=codec, sync_interval=BLOCK_BYTES, sync_marker=marker)

    def add(self, batch: StoredBatch) -> Buffer:
        header = batch.header
        write = self._writer.write
        common = {
            "timestamp_type": header.timestamp_type,
            "partition": self._partition,
            "leader_epoch": header.leader_epoch,
        }
        # All of the batch is decoded before the first row is written: a damaged one leaves no part of it.
        rows = [
            {
                "key": record.key,
                "value": record.value,
                "headers": [{"name": _text(name, record), "value": value} for name, value in record.headers],
                "timestamp": record.timestamp,
                "offset": record.offset,
                **common,
            }
            for record in read_records(batch.data, batch.pos, header)
            if record.offset >= batch.first_offset
        ]
        for row in rows:
            write(row)
        return self._drain()

    def finish(self) -> Buffer:
        self._writer.flush()
        return self._drain()

    def index(self) -> None:
        return None

    def _drain(self) -> bytes:
        data = self._file.getvalue()
        if data:
            self._file.seek(0)
            self._file.truncate()
        return data


def _text(name: str, record: Record) -> str:
    """A header's name, if Avro can hold it: its strings are UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise DecodeError(
            f"record at offset {record.offset}: a header's name is not UTF-8, and format avro cannot hold it"
            " (segment can)"
        ) from error
    return name


def read_rows(data: bytes, where: str) -> Iterator[dict[str, Any]]:
    """Rows of an object as dictionaries in the envelope's shape. Raises DamagedBackup."""
    try:
        rows: Iterator[Any] = fastavro.reader(io.BytesIO(data))
        yield from rows
    except (ValueError, EOFError, KeyError, TypeError, IndexError, OSError) as error:
        raise DamagedBackup(f"{where}: not a readable Avro file: {error!r}") from error


def rows_to_batches(
    rows: Iterator[dict[str, Any]], from_offset: int, codec: Codec
) -> Iterator[tuple[bytes, int]]:
    """(batch, next offset) for the rows at and behind `from_offset`, with the source's offsets kept."""
    records: list[Record] = []
    size = 0
    for row in rows:
        if row["offset"] < from_offset:
            continue
        headers = [(header["name"], header["value"]) for header in row["headers"]]
        length = len(row["key"] or b"") + len(row["value"] or b"")
        length += sum(len(name) + len(value or b"") for name, value in headers)
        if records and (
            size + length > BATCH_BYTES
            or len(records) >= BATCH_RECORDS
            or row["offset"] - records[0].offset > BATCH_SPAN
        ):
            yield _close(records, codec)
            records, size = [], 0
        records.append(Record(row["offset"], row["timestamp"], row["key"], row["value"], headers))
        size += length
    if records:
        yield _close(records, codec)


def _close(records: list[Record], codec: Codec) -> tuple[bytes, int]:
    batch = build_batch(records, codec=codec, base_offset=records[0].offset, preserve_offsets=True)
    if len(batch) > BATCH_BYTES and codec is not Codec.ZSTD:
        # A record that was small enough for its topic as it was compressed there has to be so again.
        other = build_batch(records, codec=Codec.ZSTD, base_offset=records[0].offset, preserve_offsets=True)
        batch = min(batch, other, key=len)
    return batch, records[-1].offset + 1
