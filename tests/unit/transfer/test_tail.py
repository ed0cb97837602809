"""Recognising at the target what a killed transfer had already written."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.records.building import build_batch
from protocol.records.compression import Codec
from protocol.records.record import Record
from protocol.types import TopicPartition
from transfer.endpoint import Chunk
from transfer.offset_map import Run
from transfer.rewrite import plan, seal
from transfer.tail import TailMatcher

TP = TopicPartition("orders", 0)


def source(count, codec=Codec.NONE, repeat=False):
    """`count` batches of 3 records; with `repeat` all have the same content."""
    data = b"".join(
        build_batch(
            [Record(0, 5, b"k", b"same" if repeat else b"%d" % (at * 3 + i)) for i in range(3)],
            base_offset=at * 3,
            codec=codec,
        )
        for at in range(count)
    )
    return plan(Chunk(TP, memoryview(data), 0, count * 3))[0]


def at_target(outs, base, foreign=()):
    """What the target stores: the batches in order, other producers' batches before those in `foreign`."""
    data, offset = bytearray(), base
    for index, out in enumerate(outs):
        if index in foreign:
            data += build_batch([Record(0, 9, b"f", b"foreign%d" % index)], base_offset=offset)
            offset += 1
        batch = bytearray(b"".join(seal(out, 8, 0, index)))
        batch[:8] = offset.to_bytes(8, "big")
        data += batch
        offset += out.record_count
    return memoryview(bytes(data)), offset


def match(outs, tail):
    matcher = TailMatcher([tail] if tail.nbytes else [])
    taken = 0
    for out in outs:
        if matcher.done or not matcher.offer(out):
            break
        taken += 1
    return matcher, taken


@given(st.integers(0, 6), st.integers(0, 6), st.sets(st.integers(0, 5)), st.booleans())
def test_exactly_what_was_written_is_recognised(total, written, foreign, repeat):
    written = min(written, total)
    outs = source(total, repeat=repeat)
    tail, _ = at_target(outs[:written], 100, foreign)
    matcher, taken = match(outs, tail)
    assert taken == written
    copied = matcher.copied()
    if not written:
        assert copied is None
        return
    assert copied is not None
    assert copied.records == 3 * written
    assert copied.next_source_offset == 3 * written
    assert matcher.left_over == len([at for at in foreign if at < written])


def test_runs_name_the_places_at_the_target():
    outs = source(2)
    tail, _ = at_target(outs, 50, foreign={1})
    matcher, _ = match(outs, tail)
    assert matcher.copied().runs == (Run(0, 50, 3), Run(3, 54, 3))


def test_a_target_that_compressed_anew_is_compared_record_by_record():
    outs = source(2)
    packed = source(2, codec=Codec.ZSTD)
    tail, _ = at_target(packed, 0)
    assert match(outs, tail)[1] == 2


def test_other_data_is_not_taken_for_ours():
    tail, _ = at_target(source(3, repeat=True), 0)
    matcher, taken = match(source(3), tail)
    assert (taken, matcher.copied(), matcher.left_over) == (0, None, 3)
