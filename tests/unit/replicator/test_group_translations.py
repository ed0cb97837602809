"""Translations that are kept while nothing has changed, and made anew when anything has."""

import pytest

from protocol.client import Committed, Metadata, TopicMetadata
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition, uuid_to_text
from replicator.group_translations import GroupTranslations
from transfer.ledger import Lineage, PartitionLedger
from transfer.offset_map import OffsetMap, Run

HERE = [TopicPartition("orders", index) for index in range(2)]
THERE = [TopicPartition("east.orders", index) for index in range(2)]
ID1, ID2 = b"1" * 16, b"2" * 16


class Source:
    """Tells ids of topics."""

    def __init__(self):
        self.id = ID1
        self.away = False

    async def metadata(self, topics):
        if self.away:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "metadata")
        found = {name: TopicMetadata(name, self.id, ErrorCode.NONE, False, {}) for name in topics}
        return Metadata("c1", 1, topics=found)


class Group:
    """One group's offsets, and the link's ledgers."""

    def __init__(self):
        self.source = Source()
        self.translations = GroupTranslations(self.source)
        self.ledgers = {tp: ledger(index) for index, tp in enumerate(HERE)}
        self.offsets = {"g": {HERE[0]: Committed(5), HERE[1]: Committed(50)}}

    async def now(self):
        return (await self.translations.of(dict(self.offsets), self.ledgers)).get("g")

    async def offset(self, index=0):
        """Where it goes on."""
        return (await self.now()).offsets.get(THERE[index])


def ledger(index):
    made = PartitionLedger(
        Lineage("c1", uuid_to_text(ID1), "orders", index), Lineage("c2", "id", "east.orders", index)
    )
    made.runs.append(Run(0, 100, 10))
    return made


@pytest.fixture
def group():
    return Group()


async def test_what_has_not_changed_is_the_same_object(group):
    first = await group.now()
    assert first.offsets == {THERE[0]: 105, THERE[1]: 110}
    assert await group.now() is first


async def test_new_offsets_count(group):
    await group.now()
    group.offsets["g"] = {HERE[0]: Committed(6)}
    assert (await group.now()).offsets == {THERE[0]: 106}
    group.offsets["g"] = {}
    assert await group.now() is None


@pytest.mark.parametrize(
    ("change", "offset"),
    [
        pytest.param(lambda runs: runs.append(Run(10, 120, 90)), 160, id="copied"),
        pytest.param(lambda runs: runs.cover_to(60), 110, id="covered"),
        pytest.param(lambda runs: (runs.truncate_source(4), runs.append(Run(4, 300, 96))), 346, id="cut"),
    ],
)
async def test_what_is_booked_in_a_ledger_counts(group, change, offset):
    """At the same offset of the group: it was held back, or its records stand elsewhere now."""
    first = await group.now()
    assert (first.offsets[THERE[1]], first.positions[THERE[1]].exact) == (110, False)
    change(group.ledgers[HERE[1]].runs)
    second = await group.now()
    assert second is not first
    assert (second.offsets[THERE[1]], second.positions[THERE[1]].exact) == (offset, True)


async def test_another_ledger_counts_and_one_that_is_gone(group):
    await group.now()
    group.ledgers[HERE[0]].runs = OffsetMap(0, 700)
    assert await group.offset() == 700
    del group.ledgers[HERE[0]]
    assert (await group.now()).offsets == {THERE[1]: 110}
    group.ledgers[HERE[0]] = ledger(0)
    assert await group.offset() == 105


async def test_a_topic_that_was_made_again_counts_until_the_copy_is_of_it(group):
    await group.now()
    group.source.id = ID2
    group.offsets["g"] = {HERE[0]: Committed(6)}  # that is when the source is asked
    assert (await group.now()).offsets == {}
    assert (await group.now()).offsets == {}
    group.source.id = ID1
    assert await group.offset() == 106
    group.source.id = ID2
    group.offsets["g"] = {HERE[0]: Committed(7)}
    assert (await group.now()).offsets == {}
    anew = group.ledgers[HERE[0]]
    anew.source = anew.source._replace(topic_id=uuid_to_text(ID2))
    assert await group.offset() == 107


async def test_a_source_that_does_not_answer_hides_no_change(group):
    await group.now()
    group.ledgers[HERE[1]].runs.append(Run(10, 120, 90))
    group.offsets["other"] = {HERE[0]: Committed(1)}
    group.source.away = True
    with pytest.raises(KafkaError):
        await group.now()
    group.source.away = False
    assert await group.offset(1) == 160
