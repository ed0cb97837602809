"""Where copying begins: stored progress against what is there now."""

from replicator.opening import Ranges, begin
from replicator.progress import Entry
from transfer.ledger import Copied, Lineage, PartitionLedger, ProducerState
from transfer.offset_map import OffsetMap, Run

SOURCE = Lineage("c1", "s1", "orders", 0)
TARGET = Lineage("c2", "t1", "east.orders", 0)


def stored():
    made = PartitionLedger(SOURCE, TARGET, OffsetMap(0, 50))
    made.add(Copied((Run(0, 50, 100),), 100, 100, 1, (1,)))
    return Entry(made, ProducerState(3, 0, 100), 2)


def go(entry, ranges, source=SOURCE, target=TARGET, *, start_at=-1):
    return begin(entry, source, target, Ranges(*ranges), start_at=start_at)


def position(beginning):
    runs = beginning.entry.ledger.runs
    return runs.source_end, runs.target_end


def test_first_start():
    assert position(go(None, (7, 90, 33))) == (7, 33)
    assert position(go(None, (7, 90, 33), start_at=60)) == (60, 33)
    assert position(go(None, (70, 90, 33), start_at=60)) == (70, 33)
    assert go(None, (7, 90, 33)).gaps == []


def test_a_partition_born_later_whose_beginning_is_gone_has_a_gap():
    beginning = go(None, (7, 90, 0), start_at=None)
    assert [(gap.start, gap.end) for gap in beginning.gaps] == [(0, 7)]
    assert beginning.entry.ledger.gaps == beginning.gaps
    assert position(beginning) == (7, 0)


def test_progress_that_belongs_is_used_as_it_is():
    entry = stored()
    beginning = go(entry, (0, 200, 150))
    assert beginning.entry is entry
    assert beginning.gaps == []


def test_another_source_topic_or_cluster_is_another_lineage_with_an_open_gap():
    for lineage in (SOURCE._replace(topic_id="s2"), SOURCE._replace(cluster_id="c9")):
        beginning = go(stored(), (0, 5, 150), source=lineage)
        assert position(beginning) == (0, 150)
        assert [(gap.start, gap.end) for gap in beginning.gaps] == [(100, 100)]
        assert "re-created" in beginning.gaps[0].reason
        assert beginning.entry.producer is None
        assert beginning.entry.ledger.source == lineage


def test_a_target_created_again_is_filled_again_and_says_what_the_source_no_longer_has():
    other = TARGET._replace(topic_id="t2")
    whole = go(stored(), (0, 200, 0), target=other)
    assert position(whole) == (0, 0)
    assert whole.gaps == []
    short = go(stored(), (60, 200, 0), target=other)
    assert position(short) == (60, 0)
    assert [(gap.start, gap.end) for gap in short.gaps] == [(0, 60)]


def test_records_that_the_target_lost_are_copied_again():
    beginning = go(stored(), (0, 200, 120))
    assert position(beginning) == (70, 120)
    assert beginning.entry.producer is None
