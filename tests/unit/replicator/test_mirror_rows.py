"""Which mirror is current: decided by topic ids, kept in rows."""

from replicator.mirror_rows import Mirror, from_ledgers, in_place, read_row, row_of, settled
from replicator.naming import Naming
from replicator.renewal import current_names
from transfer.ledger import Lineage, PartitionLedger

NOT_TOLD = "A" * 22


def go(known, source_id, target_id, taken=()):
    return settled(known, source_id, target_id, 7, lambda name: name in taken)


def test_a_mirror_is_the_same_while_both_topics_are():
    made = go(Mirror("east.orders", "s1"), "s1", "t1")
    assert made == Mirror("east.orders", "s1", "t1")
    assert go(made, "s1", "t1") is made
    assert go(made, NOT_TOLD, NOT_TOLD) is made  # a cluster that tells no ids
    assert not Mirror("east.orders", "s1").belongs("s1", "t1")


def test_another_topic_on_either_side_is_another_mirror():
    known = Mirror("east.orders", "s1", "t1")
    for source_id, target_id, why in (
        ("s2", "t1", "source"),
        ("s1", "t2", "at the target"),
        ("s1", "", "deleted"),
        ("s2", "", "source"),
    ):
        made = go(known, source_id, target_id)
        assert (made.at_target, made.source_id, made.target_id) == ("east.orders.mirror-2", source_id, "")
        (former,) = made.former
        assert (former.at_target, former.source_id, former.target_id) == ("east.orders", "s1", "t1")
        assert why in former.why
        assert read_row(row_of("orders", made)[1]) == made


def test_a_name_that_somebody_has_is_not_taken_and_one_that_was_never_made_is_used():
    known = Mirror("east.orders", "s1", "t1")
    second = go(known, "s2", "t1", taken={"east.orders.mirror-2"})
    assert second.at_target == "east.orders.mirror-3"
    again = go(second, "s3", "", taken={"east.orders.mirror-2"})
    assert (again.at_target, again.source_id, len(again.former)) == ("east.orders.mirror-3", "s3", 1)


def test_without_a_row_the_ledgers_say_what_was_connected():
    def ledger(source_id, target="east.orders"):
        return PartitionLedger(Lineage("c", source_id, "orders", 0), Lineage("d", "t1", target, 0))

    assert from_ledgers("east.orders", [], "s2") == Mirror("east.orders", "s2")
    assert from_ledgers("east.orders", [ledger("s1")], "s2").source_id == "s1"
    assert from_ledgers("east.orders", [ledger("s1"), ledger("s2")], "s2").source_id == "s2"
    assert from_ledgers("east.orders", [ledger("s1", "orders")], "s2").source_id == "s2"


def test_names_count_for_the_naming_that_they_were_made_with():
    mirrors = {"orders": Mirror("east.orders", "s2", "t2", 2), "other": Mirror("east.other", "s1", "t1")}
    assert current_names(mirrors, Naming("east", "west")) == {"orders": "east.orders.mirror-2"}
    assert current_names(mirrors, Naming("east", "west", identity=True)) == {}
    assert read_row(b"{}") is None


def test_a_mirror_made_again_in_place_keeps_those_before_it_on_record():
    first = in_place(None, "orders", "s1", "t1", 5)
    assert (first.at_target, first.target_id, first.former) == ("orders", "t1", ())
    assert in_place(first, "orders", "s1", "t1", 6) is None
    second = in_place(first, "orders", "s1", "t2", 7)
    (gone,) = second.former
    assert (second.target_id, gone.target_id, gone.at_ms) == ("t2", "t1", 7)
    assert "its id was t1, now t2" in gone.why
    assert "source" not in gone.why
    assert in_place(second, "orders", "s1", "t1", 8) is None  # seen before it was deleted
    third = in_place(second, "orders", "s2", "t3", 9)
    assert [one.target_id for one in third.former] == ["t1", "t2"]
    assert "its id was s1, now s2" in third.former[-1].why
    assert read_row(row_of("orders", third)[1]) == third
    for n in range(40):
        third = in_place(third, "orders", "s2", f"u{n}", n)
    assert len(third.former) == 20
