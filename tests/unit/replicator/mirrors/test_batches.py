"""Where the last whole batch of a Fetch answer ends, and how new it is."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.records import Record, build_batch
from replicator.mirrors.batches import Whole, whole
from tests.support.batches import old_message


def batch(base, *times):
    records = [Record(base + number, ms, None, b"v") for number, ms in enumerate(times)]
    return build_batch(records, base_offset=base)


BATCHES = [batch(5, 100), batch(6, 300, 250), batch(8, 200)]
ENDS = [sum(map(len, BATCHES[: n + 1])) for n in range(3)]


@given(st.integers(0, ENDS[-1]))
def test_what_is_cut_off_in_the_end_is_left(size):
    known = [Whole(ENDS[0], 6, 100), Whole(ENDS[1], 8, 300), Whole(ENDS[2], 9, 200)]
    there = [each for each in known if each.stop <= size]
    answer = memoryview(b"".join(BATCHES))[:size]
    assert whole(answer) == (there[-1] if there else Whole(0, 0, -1))


def test_a_message_of_an_old_format_goes_to_the_target_which_says_that_it_does_not_take_it():
    for timestamp in (1_500_000_000_000, 1_600_000_000_000):
        old = old_message(5, b"v", timestamp)
        assert whole(memoryview(old)) == Whole(len(old), 6, -1)
