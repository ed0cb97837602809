"""What may be appended, and what an append changes: in the log, and in the caller's buffer."""

from collections.abc import Callable

import pytest

from broker.log import AppendRefused, Log, Origin
from protocol.errors import ErrorCode
from protocol.records import Codec, build_batch, iter_headers, read_header, read_records
from protocol.records.header import set_log_append_time
from protocol.records.record import Record
from tests.support.batches import T0, batch, marker, records_of
from tests.support.clock import VirtualClock

OpenLog = Callable[..., Log]
HOUR = 3_600_000


def refused(log: Log, data: memoryview, origin: Origin = Origin.CLIENT) -> AppendRefused:
    """The refusal of an append, after which the log must be as before."""
    before = (log.end_offset, log.size, len(log.producers))
    with pytest.raises(AppendRefused) as caught:
        log.append(data, 0, origin)
    assert (log.end_offset, log.size, len(log.producers)) == before
    assert "t-0" in caught.value.message
    return caught.value


@pytest.mark.parametrize("codec", list(Codec))
def test_offsets_and_epoch_are_written_into_the_buffer(open_log: OpenLog, codec: Codec) -> None:
    log = open_log()
    log.append(batch(3), 4)
    data = batch(5, codec=codec)
    result = log.append(data, 7)
    assert (result.base_offset, result.last_offset, result.log_append_time_ms) == (3, 7, -1)
    header = read_header(data)
    assert (header.base_offset, header.leader_epoch) == (3, 7)
    assert [record.offset for record in records_of(log.read(0, 10_000).segments)] == list(range(8))
    assert log.epoch_end_offset(4) == (4, 3)


def test_several_batches_at_once(open_log: OpenLog) -> None:
    log = open_log()
    data = memoryview(bytearray(b"".join([batch(2), batch(1, codec=Codec.LZ4), batch(3)])))
    result = log.append(data, 0)
    assert (result.base_offset, result.last_offset) == (0, 5)
    assert [header.base_offset for _, header in iter_headers(data)] == [0, 2, 3]
    assert [r.value for r in records_of(log.read(0, 10_000).segments)][:3] == [
        b"value-0", b"value-1", b"value-0",
    ]  # fmt: skip


def corrupted(at: int, value: int) -> memoryview:
    data = batch(2)
    data[at] = value
    return data


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (memoryview(bytearray()), ErrorCode.INVALID_RECORD),
        (batch(2)[:50], ErrorCode.CORRUPT_MESSAGE),
        (batch(2)[:-1], ErrorCode.CORRUPT_MESSAGE),
        (memoryview(bytearray(bytes(batch(2)) + b"tail")), ErrorCode.CORRUPT_MESSAGE),
        (corrupted(70, 0xAA), ErrorCode.CORRUPT_MESSAGE),
        (corrupted(11, 3), ErrorCode.CORRUPT_MESSAGE),
        (corrupted(16, 1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (corrupted(16, 3), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (batch(1, base_offset=5), ErrorCode.INVALID_RECORD),
        (marker(1, 0, commit=True), ErrorCode.INVALID_RECORD),
        (batch(1, producer=(9, 0, -1)), ErrorCode.INVALID_RECORD),
        (batch([bytes(1100)]), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=[
        "nothing", "half a header", "cut short", "tail behind", "checksum", "length", "magic 1", "magic 3",
        "base offset", "control batch", "producer without sequence", "too large",
    ],
)  # fmt: skip
def test_bad_batches_are_refused(open_log: OpenLog, data: memoryview, code: ErrorCode) -> None:
    log = open_log(max_message_bytes=1000)
    log.append(batch(2), 0)
    assert refused(log, data).code == code
    log.append(batch(1), 0)
    assert log.end_offset == 3


def resealed(data: memoryview, position: int, value: bytes) -> memoryview:
    """The batch with other header bytes and the checksum that fits them."""
    data[position : position + len(value)] = value
    attributes = int.from_bytes(data[21:23], "big")
    kept = bytes(data[35:43])
    set_log_append_time(data, 0, read_header(data), int.from_bytes(kept, "big", signed=True))
    if (
        not attributes & 8
    ):  # the only public way to seal marks the batch; unmark it by sealing the bits by hand
        from crc32c import crc32c

        data[21:23] = attributes.to_bytes(2, "big")
        data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return data


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (23, (1).to_bytes(4, "big")),  # last offset delta says fewer than there are
        (57, (9).to_bytes(4, "big")),  # record count says more
        (57, bytes(4)),  # no records
        (21, (6).to_bytes(2, "big")),  # a codec that does not exist
    ],
)
def test_headers_that_lie_are_refused(open_log: OpenLog, position: int, value: bytes) -> None:
    assert refused(open_log(), resealed(batch(3), position, value)).code == ErrorCode.INVALID_RECORD


def test_more_than_a_segment_is_refused(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=500)
    assert refused(log, batch([bytes(600)])).code == ErrorCode.RECORD_LIST_TOO_LARGE


# --- timestamps


def test_timestamps_ahead_of_the_clock_are_refused_and_named(open_log: OpenLog) -> None:
    log = open_log(message_timestamp_after_max_ms=HOUR)
    error = refused(log, batch(3, timestamps=[T0, T0 + 2 * HOUR, T0]))
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1]
    log.append(batch(1, timestamps=[T0 + HOUR // 2]), 0)


def test_timestamps_behind_the_clock_are_refused_where_a_limit_is_set(open_log: OpenLog) -> None:
    log = open_log(message_timestamp_before_max_ms=HOUR)
    error = refused(log, batch(3, timestamps=[T0, T0 - 2 * HOUR, T0], codec=Codec.ZSTD))
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [1]
    log.append(batch(1, timestamps=[-1]), 0)


def test_old_timestamps_are_fine_by_default(open_log: OpenLog) -> None:
    open_log().append(batch(1, timestamps=[1_000_000]), 0)


def test_append_time_is_stamped_into_the_batch(open_log: OpenLog, clock: VirtualClock) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    clock.advance(5)
    data = batch(3, timestamps=[T0 - HOUR, T0 + 100 * HOUR, 1], codec=Codec.GZIP)
    result = log.append(data, 0)
    assert result.log_append_time_ms == T0 + 5000
    found = records_of(log.read(0, 10_000).segments)
    assert [record.timestamp for record in found] == [T0 + 5000] * 3


def test_producers_must_not_claim_append_time(open_log: OpenLog) -> None:
    data = memoryview(bytearray(build_batch([Record(0, T0, b"k", b"v")], timestamp_type=1)))
    assert refused(open_log(), data).code == ErrorCode.INVALID_TIMESTAMP


# --- compacted topics


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_every_keyless_record_on_a_compacted_topic_is_named(open_log: OpenLog, codec: Codec) -> None:
    log = open_log(cleanup_policy="compact,delete")
    error = refused(log, batch(5, keys=[b"a", None, b"", None, b"c"], codec=codec))
    assert error.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1, 3]
    log.append(batch(2, keys=[b"a", b""]), 0)


def test_a_missing_key_and_a_wrong_time_are_both_named(open_log: OpenLog) -> None:
    log = open_log(cleanup_policy="compact")
    error = refused(log, batch(3, keys=[None, b"a", b"b"], timestamps=[T0, T0, T0 + 9 * HOUR]))
    assert error.code == ErrorCode.INVALID_TIMESTAMP, "as Kafka answers when there are both"
    assert [index for index, _ in error.record_errors] == [0, 2]


def test_records_that_do_not_decompress_are_refused(open_log: OpenLog) -> None:
    data = batch([b"x" * 100] * 3, codec=Codec.ZSTD)
    data[61:70] = bytes(9)
    resealed(data, 61, bytes(9))
    assert refused(open_log(cleanup_policy="compact"), data).code == ErrorCode.CORRUPT_MESSAGE


# --- segments


def test_a_full_segment_is_rolled(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=1000)
    size = len(batch([bytes(300)]))
    for _ in range(5):
        log.append(batch([bytes(300)]), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    assert log.size == 5 * size
    assert len(records_of(log.read(0, 10_000).segments)) == 2, "one segment at a time"


def test_an_old_segment_is_rolled_by_record_time(open_log: OpenLog) -> None:
    log = open_log(segment_ms=HOUR)
    for hours in (0.0, 0.9, 1.1, 1.5):
        log.append(batch(1, timestamps=[T0 - 10 * HOUR + round(hours * HOUR)]), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_without_record_time_the_clock_counts(open_log: OpenLog, clock: VirtualClock) -> None:
    log = open_log(segment_ms=HOUR)
    log.append(batch(1, timestamps=[-1]), 0)
    clock.advance(3601)
    log.append(batch(1, timestamps=[-1]), 0)
    assert len(log.segments) == 2


def test_a_full_index_is_a_reason_to_roll(open_log: OpenLog) -> None:
    log = open_log(segment_index_bytes=40, index_interval_bytes=0)
    for i in range(20):
        log.append(batch(1, timestamps=[T0 + i]), 0)
    assert len(log.segments) > 3
    assert all(len(segment.time_index) * 12 <= 40 for segment in log.segments)


def test_relative_offsets_stay_in_31_bits(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(1, base_offset=5, leader_epoch=0), 0, Origin.REPLICATION)
    log.append(batch(1, base_offset=3_000_000_000, leader_epoch=0), 0, Origin.REPLICATION)
    log.append(batch(1, base_offset=6_000_000_000, leader_epoch=0), 0, Origin.REPLICATION)
    bases = [segment.base_offset for segment in log.segments]
    assert bases == [0, 3_000_000_000, 6_000_000_000]
    assert log.read(2_999_999_999, 1000).next_offset == 3_000_000_001


# --- copies


def test_copies_keep_offsets_epochs_and_times(open_log: OpenLog) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    data = memoryview(
        bytearray(
            bytes(batch(2, base_offset=10, leader_epoch=3)) + bytes(batch(1, base_offset=15, leader_epoch=4))
        )
    )
    result = log.append(data, 99, Origin.REPLICATION)
    assert (result.base_offset, result.last_offset, log.end_offset) == (10, 15, 16)
    assert log.epochs.entries() == [(3, 10), (4, 15)]
    assert [(r.offset, r.timestamp) for r in records_of(log.read(0, 9999).segments)] == [
        (10, T0), (11, T0), (15, T0),
    ]  # fmt: skip
    assert refused(log, batch(1, base_offset=15, leader_epoch=4), Origin.REPLICATION)


# --- producers (the rules themselves: test_producer_state)


def test_a_retry_is_answered_with_the_first_offset_and_not_stored(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(3), 0)
    for i in range(7):
        log.append(batch(2, producer=(42, 0, 2 * i)), 0)
    size = log.size
    for i in range(2, 7):
        result = log.append(batch(2, producer=(42, 0, 2 * i)), 0)
        assert (result.base_offset, result.last_offset, result.duplicate) == (3 + 2 * i, 4 + 2 * i, True)
    assert log.size == size
    assert refused(log, batch(2, producer=(42, 0, 2))).code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_holes_and_old_epochs_are_refused(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(2, producer=(42, 1, 0)), 0)
    assert refused(log, batch(1, producer=(42, 1, 3))).code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(log, batch(1, producer=(42, 0, 2))).code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, batch(1, producer=(42, 2, 2))).code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.append(batch(1, producer=(42, 2, 0)), 0)


def test_sequences_go_on_inside_one_append(open_log: OpenLog) -> None:
    log = open_log()
    good = bytes(batch(2, producer=(1, 0, 0))) + bytes(batch(1, producer=(1, 0, 2)))
    log.append(memoryview(bytearray(good)), 0)
    hole = bytes(batch(2, producer=(1, 0, 3))) + bytes(batch(1, producer=(1, 0, 6)))
    assert refused(log, memoryview(bytearray(hole))).code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = bytes(batch(1, producer=(1, 0, 2))) + bytes(batch(1, producer=(1, 0, 3)))
    assert refused(log, memoryview(bytearray(again))).code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_deleting_records_does_not_make_a_producer_unknown(open_log: OpenLog) -> None:
    log = open_log()
    for i in range(10):
        log.append(batch(1, producer=(5, 0, i)), 0)
    log.high_watermark = log.end_offset
    log.delete_before(10)
    log.enforce_retention(T0)
    for again in (log, None):
        log = again or open_log(start_offset=10, clean=True)
        retry = log.append(batch(1, producer=(5, 0, 9)), 0)
        assert (retry.base_offset, retry.duplicate, log.end_offset) == (9, True, 10)
        if again:
            log.close()
    assert log.append(batch(1, producer=(5, 0, 10)), 0).base_offset == 10


# --- transactions


def test_an_open_transaction_holds_the_last_stable_offset(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(2), 0)
    log.append(batch(2, producer=(8, 0, 0), transactional=True), 0)
    log.append(batch(2), 0)
    log.high_watermark = log.end_offset
    assert log.last_stable_offset == 2
    assert refused(log, batch(1, producer=(8, 0, 2))).code == ErrorCode.INVALID_TXN_STATE
    log.append(marker(8, 0, commit=False), 0, Origin.COORDINATOR)
    assert log.last_stable_offset == 2, "the marker is not replicated yet"
    log.high_watermark = log.end_offset
    assert log.last_stable_offset == log.end_offset == 7
    (aborted,) = log.aborted_transactions(0, 7)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (8, 2, 6)
    assert log.aborted_transactions(0, 2) == []


def test_an_abort_in_a_later_segment_is_known_to_readers_of_earlier_ones(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=500)
    log.append(batch(2), 0)
    for sequence in range(0, 40, 2):
        log.append(batch(2, producer=(8, 0, sequence), transactional=True), 0)
    log.high_watermark = log.end_offset
    assert len(log.segments) > 3
    assert log.aborted_transactions(0, 10) == [], "it is not decided yet"
    log.append(marker(8, 0, commit=False), 0, Origin.COORDINATOR)
    log.high_watermark = log.end_offset
    for start, end in ((0, 3), (0, 10), (12, 14), (41, 42)):
        assert [gone.first_offset for gone in log.aborted_transactions(start, end)] == [2]
    assert log.aborted_transactions(0, 2) == []
    for sequence in range(30):  # segments without any, and another abort behind them
        log.append(batch(2, producer=(9, 0, 2 * sequence), transactional=True), 0)
        assert len(log.aborted_transactions(0, 10)) == 1
    log.append(marker(9, 0, commit=False), 0, Origin.COORDINATOR)
    log.high_watermark = log.end_offset
    assert [gone.producer_id for gone in log.aborted_transactions(44, 46)] == [9]


def test_markers_of_old_coordinators_are_fenced(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(1, producer=(8, 3, 0), transactional=True), 0)
    log.append(marker(8, 3, commit=True, coordinator_epoch=5), 0, Origin.COORDINATOR)
    late = marker(8, 3, commit=False, coordinator_epoch=4)
    assert refused(log, late, Origin.COORDINATOR).code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    old = marker(8, 2, commit=False, coordinator_epoch=6)
    assert refused(log, old, Origin.COORDINATOR).code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_stored_records_decode_as_sent(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch([b"", b"x" * 5000], keys=[None, b""], codec=Codec.SNAPPY), 0)
    (segment,) = log.read(0, 1).segments
    (header,) = [h for _, h in iter_headers(segment)]
    assert [(r.key, r.value) for r in read_records(segment, 0, header)] == [(None, b""), (b"", b"x" * 5000)]


def test_a_batch_above_segment_bytes_is_refused_by_an_empty_segment_too(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=1000)
    log.assign_epoch(0)  # as for a leader: the batch takes the short way
    assert refused(log, batch([bytes(2000)])).code is ErrorCode.RECORD_LIST_TOO_LARGE
    log.append(batch([bytes(500)]), 0)
    assert refused(log, batch([bytes(2000)])).code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_the_last_stable_offset_is_never_before_the_start(open_log: OpenLog) -> None:
    """DeleteRecords may go past an open transaction; who asks for the end must get an offset that exists."""
    log = open_log()
    log.append(batch(2, producer=(8, 0, 0), transactional=True), 0)
    log.append(batch(2), 0)
    log.high_watermark = 4
    log.delete_before(3)
    assert log.last_stable_offset == log.start_offset == 3
    log.append(marker(8, 0, commit=False), 0, Origin.COORDINATOR)
    log.high_watermark = 5
    assert log.last_stable_offset == 5


def test_a_log_that_begins_anew_knows_no_transaction_of_before(open_log: OpenLog) -> None:
    """Its end was among what is not there: nobody would ever end it."""
    log = open_log()
    log.append(batch(2, producer=(8, 0, 0), transactional=True), 0)
    log.roll()
    log.truncate_fully(50)
    assert log.producers.open_transactions() == []
    log.append(batch(2), 0)
    log.high_watermark = log.end_offset
    assert log.last_stable_offset == 52
    log.close()
    assert open_log(clean=True).last_stable_offset == 52
