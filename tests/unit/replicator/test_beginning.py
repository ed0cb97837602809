"""Where copying begins: stored progress against what is there now."""

from replicator.entry_rows import Entry
from replicator.link_rows import First
from replicator.opening import SOURCE_RECREATED, TARGET_RECREATED, Ranges, begin
from transfer.ledger import NOT_TOLD, Copied, Gap, Lineage, PartitionLedger, ProducerState
from transfer.offset_map import OffsetMap, Run

SOURCE = Lineage("c1", "s1", "orders", 0)
TARGET = Lineage("c2", "t1", "east.orders", 0)


def stored():
    made = PartitionLedger(SOURCE, TARGET, OffsetMap(0, 50))
    made.add(Copied((Run(0, 50, 100),), 100, 100, 1, (1,)))
    return Entry(made, ProducerState(3, 0, 100), 2)


def go(entry, ranges, source=SOURCE, target=TARGET, *, start_at=-1, seen_end=-1, told=False):
    start_at = First(start_at, "s1") if isinstance(start_at, int) else start_at
    return begin(entry, source, target, Ranges(*ranges), start_at=start_at, seen_end=seen_end, told=told)


def position(beginning):
    runs = beginning.entry.ledger.runs
    return runs.source_end, runs.target_end


def test_first_start():
    assert position(go(None, (7, 90, 33))) == (7, 33)
    assert position(go(None, (7, 90, 33), start_at=60)) == (60, 33)
    assert go(None, (7, 90, 33)).gaps == go(None, (7, 90, 33), start_at=60).gaps == []


def test_what_went_between_the_first_start_and_the_first_read_is_a_gap():
    beginning = go(None, (70, 90, 33), start_at=60)
    assert position(beginning) == (70, 33)
    assert [(gap.start, gap.end) for gap in beginning.gaps] == [(60, 70)]
    assert beginning.entry.ledger.gaps == beginning.gaps


def test_a_topic_made_again_before_it_was_copied_is_copied_whole_and_what_it_held_is_an_open_gap():
    """`start: latest` would have passed over as many records of the new one."""
    for noted in (0, 60):
        beginning = go(None, (0, 90, 33), start_at=First(noted, "s0"))
        ledger = beginning.entry.ledger
        assert position(beginning) == (0, 33)
        assert [(gap.start, gap.end, gap.unknown) for gap in ledger.former_gaps] == [(noted, noted, True)]
        assert (beginning.gaps, ledger.gaps) == (ledger.former_gaps, [])
        assert ledger.former_gaps[0].reason.startswith(SOURCE_RECREATED)
    short = go(None, (7, 90, 33), start_at=First(60, "s0")).entry.ledger
    assert [(gap.start, gap.end) for gap in (*short.former_gaps, *short.gaps)] == [(60, 60), (0, 7)]
    assert go(None, (0, 90, 33), start_at=First(60)).gaps == []  # a link that had noted no ids


def test_a_broker_that_tells_no_topic_ids_takes_none_back_and_one_told_first_is_noted():
    """While a cluster is upgraded to Kafka 2.8 some brokers tell them; nothing is copied again for that."""
    for side in ("source", "target"):
        entry = stored()
        without = {side: {"source": SOURCE, "target": TARGET}[side]._replace(topic_id=NOT_TOLD)}
        assert go(entry, (0, 200, 150), **without).entry is entry
        assert (entry.ledger.source, entry.ledger.target) == (SOURCE, TARGET)
        setattr(entry.ledger, side, without[side])
        entry.sealed = 1
        beginning = go(entry, (0, 200, 150))
        assert beginning.entry is entry
        assert (beginning.gaps, position(beginning)) == ([], (100, 150))
        assert (entry.ledger.source, entry.ledger.target, entry.sealed) == (SOURCE, TARGET, 0)
        elsewhere = without[side]._replace(cluster_id="c9")
        assert go(stored(), (0, 200, 0), **{side: elsewhere}).entry.ledger.next_source_offset == 0


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


OTHERS = (SOURCE._replace(topic_id="s2"), SOURCE._replace(cluster_id="c9"))


def test_another_source_topic_or_cluster_is_another_lineage_with_an_open_gap():
    for lineage in OTHERS:
        beginning = go(stored(), (0, 5, 150), source=lineage)
        assert position(beginning) == (0, 150)
        assert [(gap.start, gap.end) for gap in beginning.gaps] == [(100, 100)]
        assert "re-created" in beginning.gaps[0].reason
        assert "not known" in beginning.gaps[0].reason
        assert beginning.entry.producer is None
        assert beginning.entry.ledger.source == lineage
        assert beginning.entry.ledger.differences == 1


def test_a_topic_that_was_copied_to_its_end_before_it_was_created_again_leaves_no_gap():
    for lineage in OTHERS:
        beginning = go(stored(), (0, 5, 150), source=lineage, seen_end=100)
        ledger = beginning.entry.ledger
        assert (beginning.gaps, ledger.differences) == ([], 0)
        assert ["re-created" in note.text for note in ledger.notes] == [True]


def test_what_was_seen_of_a_topic_and_not_copied_before_it_was_created_again_is_its_gap():
    ledger = stored()
    ledger.ledger.add_gap(Gap(100, 110, "retention passed", 1))
    beginning = go(ledger, (0, 5, 150), source=OTHERS[0], seen_end=130)
    made = beginning.entry.ledger
    assert [(gap.start, gap.end) for gap in beginning.gaps] == [(110, 130)]
    # Offsets of the former topic say nothing about those of the new one.
    assert (made.gaps, made.missing, made.differences) == ([], 30, 2)
    assert [(gap.start, gap.end) for gap in made.former_gaps] == [(100, 110), (110, 130)]


def test_a_target_created_again_is_filled_again_and_says_what_the_source_no_longer_has():
    other = TARGET._replace(topic_id="t2")
    whole = go(stored(), (0, 200, 0), target=other)
    assert position(whole) == (0, 0)
    assert whole.gaps == []
    short = go(stored(), (60, 200, 0), target=other)
    assert position(short) == (60, 0)
    assert [(gap.start, gap.end) for gap in short.gaps] == [(0, 60)]


def test_a_target_of_another_name_is_not_called_created_again():
    short = go(stored(), (60, 200, 0), target=TARGET._replace(topic_id="t2", topic="late2"))
    assert position(short) == (60, 0)
    assert "was east.orders before" in short.gaps[0].reason


def test_records_that_the_target_lost_are_copied_again():
    beginning = go(stored(), (0, 200, 120))
    assert position(beginning) == (70, 120)
    assert beginning.entry.producer is None


def test_a_gap_behind_what_is_copied_again_is_not_one_any_more():
    entry = stored()
    entry.ledger.target_lost(120, "target lost acknowledged records", 1)  # source 70 to 100
    again = go(entry, (0, 200, 0), target=TARGET._replace(topic_id="t2")).entry.ledger
    assert (again.gaps, len(again.notes)) == ([], 1)
    entry = stored()
    entry.ledger.add_gap(Gap(100, 130, "retention passed", 1))
    again = go(entry, (0, 200, 120)).entry.ledger
    assert (again.gaps, again.next_source_offset) == ([], 70)  # still gone: the source says so once more


def test_a_topic_made_again_is_always_a_gap_where_somebody_has_to_acknowledge_it():
    """`on_recreated: stop`; what is missing nothing has no length."""
    source = go(stored(), (0, 5, 150), source=OTHERS[0], seen_end=100, told=True)
    assert [(gap.start, gap.end) for gap in source.gaps] == [(100, 100)]
    assert source.entry.ledger.former_gaps == source.gaps
    assert source.gaps[0].reason.startswith(SOURCE_RECREATED)
    assert source.gaps[0].reason.endswith("all of it was copied")
    target = go(stored(), (0, 200, 0), target=TARGET._replace(topic_id="t2"), told=True)
    assert [(gap.start, gap.end) for gap in target.gaps] == [(0, 0)]
    assert target.entry.ledger.gaps == target.gaps
    assert target.gaps[0].reason.startswith(TARGET_RECREATED)
    assert position(target) == (0, 0)
    renamed = go(stored(), (0, 200, 0), target=TARGET._replace(topic_id="t2", topic="late2"), told=True)
    assert renamed.gaps == []
