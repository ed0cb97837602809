"""Gaps on record: of what is there already only the rest is new, and with `on_gap: stop` a mirror waits for
somebody who knows of the one that it stands before.
"""

from types import SimpleNamespace

import pytest

from protocol.types import TopicPartition
from replicator.acknowledgements import Acknowledgement, Difference, Kind
from replicator.difference_rows import key_of, topic_id_of
from replicator.mirrors.on_record import OnRecord, lacks_of
from replicator.mirrors.partition import MirrorPartition
from replicator.settings import LinkSettings

TP = TopicPartition("orders", 0)
WHY = "retention passed"


class Store:
    """The rows, without a cluster."""

    def __init__(self):
        self.rows, self.acknowledged = {}, {}
        self.progress = SimpleNamespace(of_mirror=lambda tp: self.rows)

    async def load(self):
        return self.progress

    async def save_differences(self, found):
        for difference, topic_id in found:
            self.rows[key_of(difference, topic_id)] = difference


def on_record(on_gap):
    ends = {"source": {"alias": "east", "bootstrap": "e:1"}, "target": {"alias": "west", "bootstrap": "w:1"}}
    settings = LinkSettings.model_validate(
        ends | {"offsets": "identical", "naming": "identity", "on_gap": on_gap}
    )
    made = OnRecord(None, settings)
    made.store = Store()
    return made


def part(end, topic_id="x"):
    made = MirrorPartition(TP, f"east->west/cluster/{topic_id}")
    made.end = end
    return made


def stretches(record):
    return sorted((found.start, found.end) for found in record.store.rows.values())


@pytest.mark.parametrize(("on_gap", "goes_on"), [("record", True), ("stop", False)])
async def test_a_gap_that_has_grown_is_on_record_once_in_two_parts(on_gap, goes_on):
    record, mirror = on_record(on_gap), part(10)
    for end in (20, 20, 25):
        assert await record.note(mirror, Kind.GAP, 10, end, WHY) is goes_on
    assert stretches(record) == [(10, 20), (20, 25)]


async def test_who_acknowledges_the_beginning_lets_the_mirror_pass_whatever_has_gone_since():
    record, mirror = on_record("stop"), part(10)
    await record.note(mirror, Kind.GAP, 10, 20, WHY)
    (gap,) = record.store.rows.values()
    record.store.acknowledged = {gap: Acknowledgement("me", "INC-1", 1)}
    assert record.lets_pass(mirror)
    assert await record.note(mirror, Kind.GAP, 10, 25, WHY)
    assert stretches(record) == [(10, 20), (20, 25)]
    mirror.end = 30
    assert not await record.note(mirror, Kind.GAP, 30, 40, WHY), "that is another gap"


async def test_gaps_of_another_topic_of_the_name_do_not_count_and_a_cut_waits_for_nobody():
    record = on_record("stop")
    await record.note(part(10, "former"), Kind.GAP, 10, 20, WHY)
    ((key, gap),) = record.store.rows.items()
    record.store.rows[key] = gap = gap._replace(at_ms=1)  # found some time ago
    record.store.acknowledged = {gap: Acknowledgement("me", "INC-1", 1)}
    assert not await record.note(part(10), Kind.GAP, 10, 20, WHY)
    assert await record.note(part(10), Kind.SUPERSEDED, 5, 10, "cut off")


def test_gaps_of_topics_that_had_the_name_before_are_told_apart():
    def gap(start, at_ms):
        return Difference(TP, Kind.GAP, start, start + 5, WHY, at_ms)

    cut = Difference(TP, Kind.SUPERSEDED, 0, 3, WHY, 2)
    ledger = lacks_of({gap(0, 3): "new", gap(10, 1): "old", gap(20, 0): "", cut: "old"})[TP]
    assert (ledger.source.topic_id, [each.start for each in ledger.gaps]) == ("new", [0])
    assert [each.start for each in ledger.former_gaps] == [10, 20]
    assert len(ledger.notes) == 1
    assert topic_id_of(key_of(cut, "an_id-1")) == "an_id-1"
