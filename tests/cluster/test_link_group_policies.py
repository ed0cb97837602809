"""Groups that somebody resets or deletes at the source on purpose, as Kafka's tools do it."""

import pytest

from protocol.client import Committed
from protocol.types import TopicPartition
from tests.cluster.links import copied_to, create, eventually, fresh, produce, running, some

pytestmark = pytest.mark.cluster


async def _at(client, group, tp, offset):
    async def there():
        found = (await client.committed(group)).get(tp)
        return (found.offset if found is not None else None) == offset

    await eventually(there, f"{group} stands at {offset} in {tp}", 60)


async def _reason(link, group, words):
    async def said():
        standing = link.status.to_json().get("groups", {}).get(group)
        return standing is not None and words in (standing["reason"] or "")

    await eventually(said, f"{group} has the reason: {words}", 60)


async def test_a_reset_and_a_deletion_at_the_source_follow_what_the_link_had_set_and_nothing_else(
    pair, clients
):
    east, west = clients
    topic = fresh("policies")
    ours, moved, gone = f"{topic}-ours", f"{topic}-moved", f"{topic}-gone"
    link = pair.link(
        topic,
        groups=[f"{topic}.*"],
        groups_on_rewind="follow",
        groups_on_delete="delete",
        sync_group_offsets_interval_s=0.2,
    )
    here, there = TopicPartition(topic, 0), TopicPartition(f"{link.source.alias}.{topic}", 0)
    await create(east, topic)
    await produce(east, topic, some(20))
    for group in (ours, moved, gone):
        await east.commit(group, {here: Committed(15)})
    async with running(link) as running_link:
        await copied_to(west, link, topic, 20)
        for group in (ours, moved, gone):
            await _at(west, group, there, 15)
        await west.commit(moved, {there: Committed(18)})
        for group in (ours, moved):
            await east.commit(group, {here: Committed(4)})
        await _at(west, ours, there, 4)
        await _reason(running_link, moved, "it was not this link that set them")
        await _at(west, moved, there, 18)
        assert await running_link.stop() == 0
    await east.commit(ours, {here: Committed(2)})  # while nobody looks
    await east.delete_groups([moved, gone])
    async with running(link) as running_link:
        await _at(west, ours, there, 2)
        await _at(west, gone, there, None)
        await _reason(running_link, moved, "positions at the target that this link did not set")
        await _at(west, moved, there, 18)
        assert await running_link.stop() == 0
    listed = {group.group_id for group in await west.list_groups()}
    assert listed & {ours, moved, gone} == {ours, moved}


async def test_by_default_groups_are_neither_taken_back_nor_deleted(pair, clients):
    east, west = clients
    topic = fresh("kept")
    group, left = f"{topic}-back", f"{topic}-left"
    link = pair.link(topic, groups=[f"{topic}.*"], sync_group_offsets_interval_s=0.2)
    here, there = TopicPartition(topic, 0), TopicPartition(f"{link.source.alias}.{topic}", 0)
    await create(east, topic)
    await produce(east, topic, some(20))
    for name in (group, left):
        await east.commit(name, {here: Committed(15)})
    async with running(link) as running_link:
        for name in (group, left):
            await _at(west, name, there, 15)
        await east.delete_groups([left])
        await east.commit(group, {here: Committed(4)})
        await _reason(running_link, group, "not taken back")
        await _at(west, group, there, 15)
        await _at(west, left, there, 15)
