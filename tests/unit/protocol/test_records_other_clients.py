"""The record code of kafka-python and aiokafka reads what we build, and we read what it builds."""

import warnings

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records import Codec, Record, build_batch, check_crc, decode_batches, read_header

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas by an old call
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

BYTES = st.none() | st.binary(max_size=200)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 1 << 45),
        BYTES,
        BYTES,
        st.lists(st.tuples(st.text(max_size=20), BYTES), max_size=3),
    ),
    min_size=1,
    max_size=20,
)
READERS = {"aiokafka": lambda raw: AiokafkaBatch(bytearray(raw)), "kafka-python": KafkaPythonBatch}
BUILDERS = {"aiokafka": AiokafkaBuilder, "kafka-python": KafkaPythonBuilder}
# kafka-python would need one more library for zstd; aiokafka uses the one that is here.
PAIRS = [
    (name, codec) for name in READERS for codec in Codec if (name, codec) != ("kafka-python", Codec.ZSTD)
]


def seen(record) -> Record:
    return Record(record.offset, record.timestamp, record.key, record.value, list(record.headers))


@pytest.mark.parametrize(("client", "codec"), PAIRS)
@given(rows=ROWS, base=st.integers(0, 1 << 50))
@settings(max_examples=30)
def test_they_read_ours(client, codec, rows, base):
    records = [Record(base + i, *row) for i, row in enumerate(rows)]
    raw = build_batch(
        records, codec=codec, base_offset=base, producer_id=5, producer_epoch=1, base_sequence=7
    )
    batch = READERS[client](raw)
    assert batch.validate_crc()
    assert [seen(record) for record in batch] == records
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 1, 7)
    assert batch.next_offset == base + len(records)


@pytest.mark.parametrize(("client", "codec"), PAIRS)
@given(rows=ROWS)
@settings(max_examples=30)
def test_we_read_theirs(client, codec, rows):
    builder = BUILDERS[client](2, int(codec), 1, 9, 2, 11, 1 << 20)
    for offset, (timestamp, key, value, headers) in enumerate(rows):
        assert builder.append(offset, timestamp, key, value, headers)
    raw = bytes(builder.build())
    header = read_header(raw)
    assert check_crc(raw, 0, header)
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 11)
    assert list(decode_batches(raw)) == [Record(i, *row) for i, row in enumerate(rows)]


def test_control_batches_and_log_append_time_mean_the_same_to_them():
    raw = build_batch(
        [Record(0, 5, b"\0\0\0\1", b"\0\0\0\0\0\0")], control=True, transactional=True, timestamp_type=1
    )
    batch = AiokafkaBatch(bytearray(raw))
    assert batch.is_control_batch
    assert batch.is_transactional
    assert batch.timestamp_type == 1
    assert [record.timestamp for record in batch] == [5]
