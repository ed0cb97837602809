"""Translation of groups and the rules of writing them."""

from protocol.types import TopicPartition
from replicator.group_rules import decide
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


def test_a_group_ahead_of_the_copy_is_held_at_its_end():
    assert translated(18).positions == {THERE: Position(125, False, 18)}


def test_what_cannot_be_translated_has_a_reason():
    assert "does not copy" in translated(3, tp=TopicPartition("other", 0)).skipped[TopicPartition("other", 0)]
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
