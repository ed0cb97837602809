"""The ledger: booking, gaps and its stored form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transfer.digest import extend_digest
from transfer.ledger import (
    TARGET_LOST,
    BeforeTheCopyError,
    Copied,
    DiscontinuityError,
    Gap,
    LedgerError,
    Lineage,
    Note,
    PartitionLedger,
    Superseded,
    book_into,
)
from transfer.offset_map import OffsetMap, Run

EAST = Lineage("east-id", "AAAAAAAAAAAAAAAAAAAAAQ", "orders", 3)
WEST = Lineage("west-id", "AAAAAAAAAAAAAAAAAAAAAg", "east.orders", 3)


def ledger():
    made = PartitionLedger(EAST, WEST)
    made.add(Copied((Run(0, 5, 10),), 11, 10, 700, (1, 2)))
    made.add_gap(Gap(11, 20, "retention passed", 7))
    made.add(Copied((Run(20, 15, 1),), 21, 1, 90, (3,)))
    return made


def test_counts_digest_and_position_follow_what_was_booked():
    made = ledger()
    assert (made.records, made.bytes, made.batches, made.next_source_offset) == (11, 790, 3, 21)
    assert made.digest == extend_digest(0, [1, 2, 3])
    assert made.missing == 9


def test_a_stored_ledger_is_read_back_equal():
    made = ledger()
    made.rewind(8, "source truncated", 9)
    made.former_gaps.append(Gap(3, 3, "source topic re-created", 8))
    made.target_ends(12, TARGET_LOST, 10)
    assert made != ledger()
    assert PartitionLedger.decode(made.encode()) == made


def test_a_ledger_without_the_newer_fields_is_read():
    old = {
        k: v
        for k, v in ledger().to_json().items()
        if k not in ("superseded", "former_gaps", "notes", "left_out", "lost_end")
    }
    assert PartitionLedger.from_json(old) == ledger()


def test_what_the_source_replaced_is_superseded_and_no_gap():
    made = ledger()
    made.rewind(8, "source truncated", 9)
    assert made.superseded == [Superseded(13, 16, "source truncated", 9)]
    assert (made.gaps, made.next_source_offset, made.missing, made.differences) == ([], 8, 0, 1)
    assert made.notes == [Note("gap 11..20 (retention passed) was read again: source truncated", 9)]
    made.add(Copied((Run(8, 16, 4),), 12, 4, 90, (4,)))
    assert made.superseded == [Superseded(13, 16, "source truncated", 9)]


def test_superseded_copies_that_turn_out_to_be_the_sources_are_none():
    made = ledger()
    made.rewind(2, "source truncated", 9)
    assert made.superseded == [Superseded(7, 16, "source truncated", 9)]
    made.add(Copied((Run(2, 9, 3),), 5, 3, 90, (4,)))
    assert [(s.start, s.end) for s in made.superseded] == [(7, 9), (12, 16)]
    made.target_ends(14, "target lost acknowledged records", 10)
    assert [(s.start, s.end) for s in made.superseded] == [(7, 9), (12, 14)]


def test_adjacent_gaps_with_one_reason_become_one():
    made = PartitionLedger(EAST, WEST)
    made.add_gap(Gap(0, 5, "retention passed", 1))
    made.add_gap(Gap(5, 9, "retention passed", 2))
    made.add_gap(Gap(9, 9, "topic re-created", 3))
    assert made.gaps == [Gap(0, 9, "retention passed", 1), Gap(9, 9, "topic re-created", 3)]
    assert made.next_source_offset == 9


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"version":99}', b"null", b'{"version":1,"source":5}'])
def test_a_damaged_ledger_is_one_kind_of_error(data):
    with pytest.raises(LedgerError):
        PartitionLedger.decode(data)


@pytest.mark.parametrize(
    "write",
    [
        Copied((Run(22, 16, 1),), 23, 1, 90, (4,), first_source_offset=22),  # 21 is missing
        Copied((), 23, 0, 0, (), first_source_offset=22),
        Copied((Run(20, 16, 2),), 22, 2, 90, (4,), first_source_offset=20),  # 20 is booked
        Copied((Run(20, 12, 2),), 22, 2, 90, (4,)),  # and no proof that the target lost something
    ],
)
def test_a_write_that_does_not_continue_what_is_booked_is_refused_whole(write):
    made = ledger()
    for book in (made.add, lambda copied: book_into(made, copied)):
        with pytest.raises(DiscontinuityError, match="what is before it ends at 21"):
            book(write)
        assert made == ledger()


def test_a_write_that_is_said_to_be_before_the_copy_is_not_there():
    """The target took it for an old one; booked, it would be lost and the whole copy broken."""
    made = PartitionLedger(EAST, WEST, OffsetMap(0, 110))
    for book in (made.add, lambda copied: book_into(made, copied)):
        with pytest.raises(BeforeTheCopyError, match="target offset 80"):
            book(Copied((Run(0, 80, 30),), 30, 30, 300, (1,)))
    assert (made.next_source_offset, made.gaps, made.records) == (0, [], 0)


def test_a_write_may_account_for_what_was_passed_before():
    """Markers at 21 and 22 were booked by themselves, and are also of the write behind them."""
    made = ledger()
    made.add(Copied((), 23, 0, 0, (), first_source_offset=21))
    made.add(Copied((Run(23, 16, 1),), 24, 1, 90, (4,), first_source_offset=21))
    assert (made.next_source_offset, made.records) == (24, 12)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4), st.booleans()), max_size=30))
def test_the_position_never_passes_an_offset_that_no_write_accounted_for(writes):
    """Writes in any order, some lost, some twice: each (first, length, with data)."""
    made, accounted = PartitionLedger(EAST, WEST), set()
    for first, length, has_data in writes:
        end = first + length
        runs = (Run(first, made.runs.target_end, length),) if has_data and length else ()
        try:
            book_into(made, Copied(runs, end, len(runs), 1, (), first_source_offset=first))
        except DiscontinuityError:
            continue
        accounted |= set(range(first, end))
    assert set(range(made.next_source_offset)) <= accounted
    assert [offset for run in made.runs for offset in range(run.source, run.source + run.length)] == sorted(
        {offset for run in made.runs for offset in range(run.source, run.source + run.length)}
    )


def test_a_target_that_loses_records_in_the_middle_of_a_write_leaves_a_gap():
    """An unclean election between two batches of it, at a broker that knows nothing of the producer."""
    made = PartitionLedger(EAST, WEST)
    book_into(made, Copied((Run(0, 0, 10),), 10, 10, 100, (1,)))
    runs = (Run(10, 10, 10), Run(25, 12, 5), Run(30, 5, 10))
    gap = book_into(made, Copied(runs, 41, 25, 250, (2, 3, 4), first_source_offset=10, at_ms=7))
    assert made.gaps == [Gap(12, 25, TARGET_LOST, 7), Gap(5, 30, TARGET_LOST, 7)]
    assert gap == made.gaps[-1]
    assert list(made.runs) == [Run(0, 0, 5), Run(30, 5, 10)]
    assert made.lost_end == 20, "a broker that has all of it may lead again"
    assert (made.next_source_offset, made.records, made.bytes, made.batches) == (41, 35, 350, 4)


_WRITES = st.tuples(st.just("write"), st.integers(0, 2), st.integers(0, 2), st.integers(1, 4))
_TURNS = st.one_of(
    _WRITES,
    _WRITES,
    st.tuples(st.just("gap"), st.integers(1, 4), st.just(0), st.just(0)),
    st.tuples(st.just("source truncated"), st.integers(0, 30), st.just(0), st.just(0)),
    st.tuples(st.just("target reopened"), st.integers(0, 30), st.just(0), st.just(0)),
    st.tuples(st.just("target went back"), st.integers(0, 30), st.integers(1, 4), st.just(0)),
)


@given(st.integers(0, 9), st.integers(0, 9), st.lists(_TURNS, max_size=25))
def test_translation_follows_what_stands_at_both_sides_through_losses_and_truncations(source, target, turns):
    """Against a plain list of the copies that are there and whose originals are: exact both ways, never past
    one of them, and never past the end of what is dealt with."""
    made = PartitionLedger(EAST, WEST, OffsetMap(source, target))
    pairs: list[tuple[int, int]] = []
    position, end = source, target
    for kind, one, other, length in turns:
        if kind == "write":
            first, at = position + one, end + other
            made.add(Copied((Run(first, at, length),), first + length, length, 1, ()))
            pairs += [(first + n, at + n) for n in range(length)]
            position, end = first + length, at + length
        elif kind == "gap":
            made.add_gap(Gap(position, position + one, "retention passed", 1))
            position += one
        elif kind == "source truncated":
            position = max(position - one, 0)
            made.rewind(position, kind, 1)
            pairs = [pair for pair in pairs if pair[0] < position]
        elif kind == "target reopened":
            end = max(end - one, 0)
            if end < made.runs.target_end:
                gone = [pair[0] for pair in pairs if pair[1] >= end]
                made.target_ends(end, kind, 1)
                position = min(gone, default=position)
                pairs = [pair for pair in pairs if pair[1] < end]
        else:
            at = max(end - one, made.runs.target_start)
            gone = [pair[0] for pair in pairs if pair[1] >= at]
            book_into(made, Copied((Run(position, at, other),), position + other, other, 1, ()))
            if gone:
                assert made.gaps[-1][:2] == (min(gone), position)
            pairs = [pair for pair in pairs if pair[1] < at] + [(position + n, at + n) for n in range(other)]
            position, end = position + other, at + other
        assert made.next_source_offset == position
        copied_end = max((there + 1 for _, there in pairs), default=made.runs.target_start)
        for offset in range(position + 3):
            later = [there for here, there in pairs if here >= offset]
            assert made.runs.to_target(offset) == (min(later, default=copied_end), offset <= position)
        for offset in range(copied_end + 3):
            later = [here for here, there in pairs if there >= offset]
            assert made.runs.to_source(offset) == (min(later, default=position), offset <= copied_end)
    assert PartitionLedger.decode(made.encode()) == made
