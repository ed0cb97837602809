"""Producers: sequences, retries, epochs, expiry, transactions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.log.errors import AppendRefused
from broker.log.producer_state import WINDOW, ProducerStates, SeenBatch
from protocol.errors import ErrorCode
from protocol.records import BatchHeader, read_header
from tests.support.batches import T0, batch, marker

MAX = 2**31 - 1


def header(sequence: int, records: int = 1, *, epoch: int = 0, transactional: bool = False) -> BatchHeader:
    return read_header(batch(records, producer=(7, epoch, sequence), transactional=transactional))


def admitted(states: ProducerStates, new: BatchHeader) -> SeenBatch | None:
    """None, or the batch as stored before; raises AppendRefused. What simply follows is never refused."""
    seen = states.duplicate(new)
    if seen is None:
        states.check(new)
    if states.follows(new.producer_id, new.producer_epoch, new.base_sequence, new.attributes):
        assert seen is None
    return seen


def test_an_unknown_producer_may_start_anywhere() -> None:
    """As in Kafka: its state may have expired, and the broker cannot tell."""
    states = ProducerStates("t-0")
    assert admitted(states, header(500)) is None
    states.update(header(500), 0, T0)
    with pytest.raises(AppendRefused):
        admitted(states, header(502))


def test_sequences_wrap_to_zero() -> None:
    states = ProducerStates("t-0")
    states.update(header(MAX - 1, 2), 10, T0)
    assert admitted(states, header(0)) is None
    states.update(header(0, 3), 12, T0)
    seen = admitted(states, header(MAX - 1, 2))
    assert seen is not None
    assert seen.first_offset == 10
    across = ProducerStates("t-0")
    across.update(header(MAX, 4), 0, T0)
    assert admitted(across, header(3)) is None


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(0, MAX))
def test_the_last_five_batches_are_known_again(sizes: list[int], start: int) -> None:
    states = ProducerStates("t-0")
    sequence, offset, sent = start, 0, []
    for size in sizes:
        sent.append((header(sequence, size), offset))
        assert admitted(states, sent[-1][0]) is None
        states.update(*sent[-1], T0)
        sequence, offset = (sequence + size) & MAX, offset + size
    for known, first_offset in sent[-WINDOW:]:
        seen = admitted(states, known)
        assert seen is not None
        assert (seen.first_offset, seen.last_offset) == (first_offset, first_offset + known.last_offset_delta)
    for forgotten, _ in sent[:-WINDOW]:
        with pytest.raises(AppendRefused) as refusal:
            admitted(states, forgotten)
        assert refusal.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_another_size_at_the_same_sequence_is_no_retry() -> None:
    states = ProducerStates("t-0")
    states.update(header(0, 3), 0, T0)
    with pytest.raises(AppendRefused):
        admitted(states, header(0, 2))


@pytest.mark.parametrize(
    ("epoch", "sequence", "code"),
    [
        (2, 3, None),
        (2, 4, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (1, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, 0, None),
        (3, 3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_epochs(epoch: int, sequence: int, code: ErrorCode | None) -> None:
    states = ProducerStates("t-0")
    states.update(header(0, 3, epoch=2), 0, T0)
    if code is None:
        assert admitted(states, header(sequence, epoch=epoch)) is None
    else:
        with pytest.raises(AppendRefused) as refusal:
            admitted(states, header(sequence, epoch=epoch))
        assert refusal.value.code == code


def test_a_quiet_producer_is_forgotten_by_our_clock_not_by_its_records() -> None:
    states = ProducerStates("t-0", expiration_ms=1000)
    old = read_header(batch(1, timestamps=[5], producer=(7, 0, 0)))
    states.update(old, 0, T0)
    assert states.expire(T0 + 999) == 0
    assert states.expire(T0 + 1000) == 1
    assert len(states) == 0


def test_an_open_transaction_keeps_its_producer() -> None:
    states = ProducerStates("t-0", expiration_ms=1000)
    states.update(header(0, transactional=True), 5, T0)
    assert states.expire(T0 + 10_000) == 0
    assert states.first_unstable == 5
    end = read_header(marker(7, 0, commit=True))
    done = states.end_transaction(end, 6, commit=True, coordinator_epoch=1, now_ms=T0)
    assert done is not None
    assert not done.aborted
    states.on_high_watermark(7)
    assert states.first_unstable is None
    assert states.expire(T0 + 10_000) == 1


def test_a_bumped_epoch_starts_at_zero_again_after_its_marker() -> None:
    states = ProducerStates("t-0")
    states.update(header(0, 5, transactional=True), 0, T0)
    states.end_transaction(
        read_header(marker(7, 1, commit=False)), 5, commit=False, coordinator_epoch=1, now_ms=T0
    )
    assert admitted(states, header(0, epoch=1)) is None
    with pytest.raises(AppendRefused):
        admitted(states, header(5, epoch=1))
    with pytest.raises(AppendRefused):
        admitted(states, header(5, epoch=0))


def test_snapshots_bring_back_what_matters() -> None:
    states = ProducerStates("t-0")
    states.update(header(MAX, 3, epoch=4), 100, T0)
    other = read_header(batch(2, producer=(8, 0, 0), transactional=True))
    states.update(other, 103, T0)
    loaded = ProducerStates("t-0")
    loaded.load_snapshot(states.to_snapshot(), T0 + 5)
    seen = admitted(loaded, header(MAX, 3, epoch=4))
    assert seen is not None
    assert (seen.first_offset, seen.last_offset) == (100, 102)
    assert admitted(loaded, header(2, epoch=4)) is None
    assert loaded.first_unstable == 103
    assert [e.last_offset for e in loaded.to_snapshot()] == [102, 104]
