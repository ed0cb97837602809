"""Batches built from the rows of an `avro` backup: no larger than their topics took them before."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from connectors.avro_format import BATCH_BYTES, AvroEncoder, read_rows, rows_to_batches
from connectors.formats import StoredBatch
from protocol.errors import DecodeError
from protocol.records import Codec, Record, build_batch
from protocol.records.header import HEADER_SIZE, read_header
from protocol.records.reading import read_records

_MARGIN = 32 * 1024
"""What a batch has beside keys, values and headers: lengths, offsets, times."""


def rows(values: list[bytes], headers: list[tuple[str, bytes]] | None = None) -> Iterator[dict[str, Any]]:
    given = [{"name": name, "value": value} for name, value in headers or []]
    for offset, value in enumerate(values):
        yield {"key": None, "value": value, "headers": given, "timestamp": 1, "offset": offset}


def offsets(batch: bytes) -> list[int]:
    return [record.offset for record in read_records(memoryview(batch), 0, read_header(batch))]


def test_headers_count() -> None:
    tracing = [("trace", random.Random(1).randbytes(2000))]
    made = list(rows_to_batches(rows([b"v"] * 2000, tracing), 0, Codec.NONE))
    assert max(len(batch) for batch, _ in made) <= BATCH_BYTES + _MARGIN
    assert [offset for batch, _ in made for offset in offsets(batch)] == list(range(2000))


def test_a_name_of_a_header_that_avro_cannot_hold_is_said_and_leaves_no_row() -> None:
    encoder = AvroEncoder("an/object", 0, "null")
    odd = b"caf\xe9".decode(errors="surrogateescape")
    for names, said in ((["fine", odd], True), (["fine", "fine"], False)):
        made = build_batch([Record(n, 1, b"k", b"v", [(name, b"x")]) for n, name in enumerate(names)])
        batch = StoredBatch(memoryview(made), 0, read_header(made), 0)
        if said:
            with pytest.raises(DecodeError, match="offset 1: a header's name is not UTF-8"):
                encoder.add(batch)
        else:
            data = bytes(encoder.add(batch)) + bytes(encoder.finish())
    assert [row["offset"] for row in read_rows(data, "an object")] == [0, 1]


def test_a_large_record_is_alone() -> None:
    values = [b"x" * (BATCH_BYTES - 10), b"y" * 3 * BATCH_BYTES, b"z"]
    made = list(rows_to_batches(rows(values), 0, Codec.NONE))
    assert [offsets(batch) for batch, _ in made] == [[0], [1], [2]]


def test_a_record_that_lz4_cannot_make_small_is_as_small_as_it_was() -> None:
    """What repeats after more than 64 KB is out of lz4's reach, and not of the producer's zstd."""
    value = random.Random(2).randbytes(200_000) * 10
    there = build_batch([Record(0, 1, None, value)], codec=Codec.ZSTD, base_offset=0)
    ((batch, _),) = rows_to_batches(rows([value]), 0, Codec.LZ4)
    assert len(there) + HEADER_SIZE < BATCH_BYTES
    assert len(batch) <= len(there)
    assert offsets(batch) == [0]
