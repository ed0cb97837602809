"""Translation of groups and the rules of writing them."""

import pytest

from protocol.types import TopicPartition
from replicator.group_rows import Noted, read_row, row_of
from replicator.group_rules import Rewinds, Stood, decide, held_back, in_short, refuses_deletion
from replicator.translate import Direction, GroupTranslation, Position, translate_group
from transfer.ledger import Copied, Lineage, PartitionLedger
from transfer.offset_map import OffsetMap, Run

HERE = TopicPartition("orders", 0)
THERE = TopicPartition("east.orders", 0)


def ledgers():
    made = PartitionLedger(
        Lineage("c1", "id1", "orders", 0), Lineage("c2", "id2", "east.orders", 0), OffsetMap(0, 100)
    )
    made.add(Copied((Run(0, 100, 10),), 12, 10, 1, ()))  # 10 and 11 are markers
    made.add(Copied((Run(12, 120, 5),), 17, 5, 1, ()))
    return {HERE: made}


def translated(offset, direction=Direction.TO_TARGET, tp=HERE, ids=None):
    return translate_group({tp: offset}, ledgers(), direction, ids)


def test_positions_are_exact_in_both_directions():
    for offset, expected in [(0, 100), (9, 109), (10, 120), (12, 120), (16, 124), (17, 125)]:
        assert translated(offset).positions == {THERE: Position(expected, True, offset)}
    back = translated(124, Direction.TO_SOURCE, THERE)
    assert back.positions == {HERE: Position(16, True, 124)}


def test_who_stands_behind_the_markers_at_the_end_of_the_copy_stands_at_its_end():
    held = translate_group({THERE: 127}, ledgers(), Direction.TO_SOURCE)
    assert held.positions == {HERE: Position(17, False, 127)}
    found = translate_group({THERE: 127}, ledgers(), Direction.TO_SOURCE, nothing_behind={THERE})
    assert found.positions == {HERE: Position(17, True, 127)}


def test_nothing_is_translated_into_a_topic_that_is_another_by_now():
    """Its offsets are those of the old one."""

    def there(ids):
        return translate_group({HERE: 9}, ledgers(), topic_ids={"orders": "id1"}, there_ids=ids)

    for ids in (None, {"east.orders": "id2"}, {"east.orders": ""}):
        assert there(ids).positions == {THERE: Position(109, True, 9)}
    assert "created again" in there({"east.orders": "id3"}).skipped[HERE]
    assert "not there any more" in there({"other": "id2"}).skipped[HERE]


def test_a_group_ahead_of_the_copy_is_held_at_its_end():
    assert translated(18).positions == {THERE: Position(125, False, 18)}


def test_what_cannot_be_translated_has_a_reason():
    other = TopicPartition("other", 0)  # left out, or not begun yet
    assert translated(3, tp=other).skipped[other] == "this link has copied nothing of the partition"
    assert "created again" in translated(3, ids={"orders": "id9"}).skipped[HERE]
    assert "no valid offset" in translated(-1).skipped[HERE]


def positions(*pairs):
    made = GroupTranslation()
    for number, (offset, exact) in enumerate(pairs):
        made.positions[TopicPartition("east.orders", number)] = Position(offset, exact, offset)
    return made


def at(*offsets):
    return {
        TopicPartition("east.orders", n): offset for n, offset in enumerate(offsets) if offset is not None
    }


@pytest.mark.parametrize(
    ("stood", "goes_back"),
    [
        pytest.param(Stood(9, 5), True, id="as it was set; the mirror is another one behind what it lost"),
        pytest.param(Stood(9, 3), True, id="and the group has read on at the source"),
        pytest.param(Stood(8, 5), False, id="somebody has moved it since"),
        pytest.param(Stood(9, 6), False, id="the group went back at the source: by policy"),
        pytest.param(None, False, id="not known"),
    ],
)
def test_a_position_of_records_that_the_target_has_lost_goes_back(stood, goes_back):
    known = {} if stood is None else {TopicPartition("east.orders", 0): stood}
    decision = decide(positions((5, True)), "Empty", at(9), stood=known)
    assert decision.commits == (at(5) if goes_back else {})
    assert (decision.reason is None) == goes_back
    assert not decision.goes_back


def test_missing_and_smaller_offsets_are_written_also_zero():
    decision = decide(positions((5, True), (0, True), (7, True)), "Empty", at(4, None, 7))
    assert decision.commits == at(5, 0, None)
    assert decision.reason is None


def test_a_group_is_never_taken_back():
    decision = decide(positions((5, True), (6, True)), "Empty", at(9, 3))
    assert decision.commits == at(None, 6)
    assert "not taken back" in decision.reason


def test_an_active_group_is_left_alone_with_a_reason():
    for state in ("Stable", "PreparingRebalance", "CompletingRebalance"):
        decision = decide(positions((5, True)), state, {})
        assert decision.commits == {}
        assert "active" in decision.reason


def test_a_group_that_does_not_exist_is_made():
    assert decide(positions((5, True)), "Dead", {}).commits == at(5)


def test_reasons_for_groups_that_wait_or_have_nothing():
    assert "not copied yet" in decide(positions((5, False)), "Empty", {}).reason
    assert "nothing to translate" in decide(GroupTranslation(), "Empty", {}).reason


def notes(*pairs):
    return {
        TopicPartition("east.orders", n): Noted(TopicPartition("orders", n), *pair)
        for n, pair in enumerate(pairs)
        if pair is not None
    }


def test_a_reset_at_the_source_is_followed_where_the_link_had_set_the_group():
    back = decide(positions((5, True)), "Empty", at(9), Rewinds(notes((9, 9)), "Empty"))
    assert (back.commits, back.reason, back.goes_back) == (at(5), None, True)
    for noted, state, why in (
        (notes((9, 8)), "Empty", "not this link"),
        ({}, "Empty", "not this link"),
        (notes((5, 9)), "Empty", "did not go back"),  # the copy did, not the group
        (notes((9, 9)), "Stable", "members at the source"),
    ):
        kept = decide(positions((5, True)), "Empty", at(9), Rewinds(noted, state))
        assert (kept.commits, kept.waits, kept.goes_back) == ({}, True, False)
        assert why in kept.reason
    active = decide(positions((5, True)), "Stable", at(9), Rewinds(notes((9, 9)), "Empty"))
    assert active.commits == {}


def test_a_group_goes_only_if_all_of_it_is_the_links_and_nobody_reads_with_it():
    def go(here="Dead", there="Empty", committed=None, topics=("orders",)):
        stands = at(9) if committed is None else committed
        return refuses_deletion(notes((9, 9)), here, there, stands, topics)

    assert go() is None
    assert go(committed={}) is None
    assert "coordinator" in go(here="Empty")
    assert "active" in go(there="Stable")
    assert "did not set" in go(committed=at(10))
    assert "did not set" in go(committed=at(9, 1))
    assert "topic" in go(topics=("payments",))


def test_many_groups_gone_at_once_are_not_deleted():
    assert held_back(["a"], 4, any_at_source=True) is None
    assert "no groups at all" in held_back(["a"], 4, any_at_source=False)
    many = [str(number) for number in range(11)]
    assert "11 of 40" in held_back(many, 40, any_at_source=True)
    assert held_back(many, 44, any_at_source=True) is None
    assert held_back([], 0, any_at_source=False) is None


def test_groups_are_counted_and_those_with_a_reason_named():
    told = in_short({f"g{number:03}": "it waits" for number in range(150)} | {"fine": None})
    assert (told["in_sync"], told["not_in_sync"], len(told["reasons"])) == (1, 150, 100)
    assert told["reasons"]["g000"] == "it waits"


def test_rows_of_groups_can_be_read_again():
    noted = notes((9, 10), (3, 4))
    key, value = row_of("a/b", noted)
    assert (key, read_row(value)) == (b"group/a/b", noted)
    assert row_of("a", None) == row_of("a", {}) == (b"group/a", None)
    assert read_row(b"[[1]]") == {}
