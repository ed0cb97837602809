"""The ledger: booking, gaps and its stored form."""

import pytest

from transfer.digest import extend_digest
from transfer.ledger import Copied, Gap, LedgerError, Lineage, Note, PartitionLedger, Superseded
from transfer.offset_map import Run

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
    assert made != ledger()
    assert PartitionLedger.decode(made.encode()) == made


def test_a_ledger_without_the_newer_fields_is_read():
    old = {
        k: v
        for k, v in ledger().to_json().items()
        if k not in ("superseded", "former_gaps", "notes", "left_out")
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
