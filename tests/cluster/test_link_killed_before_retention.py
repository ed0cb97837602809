"""A link is killed behind writes that it has not stored, and the source lets go of what it wrote."""

import pytest

from protocol.records import build_batch
from protocol.types import TopicPartition
from replicator.progress import ProgressStore
from tests.cluster.links import BOTH_SOURCES, Pair, content, create, eventually, fresh, produce, running, some

pytestmark = BOTH_SOURCES


@pytest.mark.parametrize("known", [0, 2])
async def test_what_comes_next_is_not_taken_for_a_repetition_of_it(pair: Pair, clients, known):
    """The sequence numbers of its producer are used up at the target; nothing tells by which records, also
    where some behind them can be recognised (`known`)."""
    east, west = clients
    topic = fresh("killed")
    source = TopicPartition(topic, 0)
    link = pair.link(topic)
    mirror = f"{link.source.alias}.{topic}"
    await create(east, topic)
    for record in some(3, "first"):
        await produce(east, topic, [record])

    async def copied(count: int) -> bool:
        return len(await content(west, mirror)) >= count

    async with running(link):
        await eventually(lambda: copied(3), "the first are copied")

    store = ProgressStore(west, link.progress_topic)
    entry = (await store.refresh()).entry(source)
    assert entry is not None
    assert entry.producer is not None
    for number, record in enumerate([*some(3, "gone"), *some(known, "known")]):
        await produce(east, topic, [record])
        batch = build_batch(
            [record],
            producer_id=entry.producer.producer_id,
            producer_epoch=entry.producer.epoch,
            base_sequence=entry.producer.next_sequence + number,
        )
        await west.produce(TopicPartition(mirror, 0), batch)
    await east.delete_records({source: 6})
    await produce(east, topic, some(1, "late"))

    async with running(link) as again:
        await eventually(lambda: copied(7 + known), "what is left is copied")
        assert await again.stop() == 3, "what went may not have been copied"
        assert not again.metric("isthmus_link_disorders_total")
    values = [value for _, _, value, _ in await content(west, mirror)]
    assert values == [
        f"{tag}-{i}".encode()
        for tag, count in (("first", 3), ("gone", 3), ("known", known), ("late", 1))
        for i in range(count)
    ]
    found = (await store.refresh()).entry(source)
    assert found is not None
    assert [(gap.start, gap.end) for gap in found.ledger.gaps] == [(3, 6)]
    assert found.ledger.gaps[0].reason.endswith("perhaps copied before")
    assert [tuple(run) for run in found.ledger.runs] == [(0, 0, 3), (6, 6, known + 1)]
