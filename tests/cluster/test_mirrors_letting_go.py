"""Mirrors of topics that let go of records: by request, by compaction; also while nobody copies, and before
roles change.
"""

import asyncio
import time

import pytest

from protocol.client import EARLIEST
from protocol.records import Record
from protocol.types import TopicPartition
from replicator.mirrors.assessing import find_mirrors
from replicator.mirrors.reversing import reverse, reversible
from replicator.mirrors.switching import failover
from tests.cluster.links import create, eventually, fresh, produce, records, some
from tests.cluster.mirrors import clean_often, mirror_link, mirrored_once, mirroring, quiet, same_logs

pytestmark = pytest.mark.cluster


async def test_records_that_are_deleted_while_a_link_rests_go_at_the_mirror_too(pair, clients):
    """Nothing new comes that would carry the source's beginning along."""
    east, west = clients
    topic = fresh("rests")
    tp = TopicPartition(topic, 0)
    await create(east, topic)
    await produce(east, topic, some(10))
    link = mirror_link(pair.east, pair.west, topic)
    await mirrored_once(east, west, link, topic)
    await east.delete_records({tp: 4})

    async def gone():
        return (await west.list_offsets({tp: EARLIEST}))[tp].offset == 4

    async with mirroring(link) as running:
        await eventually(gone, "the mirror begins where its source does", 10)
        assert await running.stop() == 0


async def test_a_key_whose_newer_record_is_cut_off_has_its_older_one_again(pair, clients, tmp_path):
    """The old side has compacted what both had by what only it had."""
    east, west = clients
    topic, now_ms = fresh("cleaned"), time.time_ns() // 1_000_000
    await asyncio.to_thread(clean_often, pair.east)
    await create(east, topic, cleanup_policy="compact", segment_bytes="600", min_cleanable_dirty_ratio="0")
    await produce(east, topic, [Record(0, now_ms, b"key", b"both")])
    await produce(east, topic, [Record(0, now_ms, b"other", b"both")])
    link = mirror_link(pair.east, pair.west, topic)
    await mirrored_once(east, west, link, topic)
    await failover(None, west, link, await find_mirrors(west, link), quiet)
    for number in range(12):
        await produce(east, topic, [Record(0, now_ms, b"key", b"only-%d" % number)])

    async def cleaned():
        return b"both" not in {each.value for each in await records(east, topic) if each.key == b"key"}

    await eventually(cleaned, "the old side has compacted what both had", 20)
    back = mirror_link(pair.west, pair.east, topic, back=True)
    names = await reversible(east, west, link, back.name)
    (parting,) = await reverse(east, west, names, back.name, tmp_path, quiet)
    assert (parting.common_end, parting.records) == (2, 12)
    async with mirroring(back) as running:
        await same_logs(west, east, topic)
        assert await running.stop() == 0
    assert [(each.key, each.value) for each in await records(east, topic)] == [
        (b"key", b"both"),
        (b"other", b"both"),
    ]


async def test_sides_that_have_taken_other_records_out_of_one_batch_are_no_other_logs(
    pair, clients, tmp_path
):
    """As many are left of it on both sides, with other times."""
    east, west = clients
    topic, now_ms = fresh("apart"), time.time_ns() // 1_000_000
    for side in (pair.east, pair.west):
        await asyncio.to_thread(clean_often, side)
    await create(east, topic, cleanup_policy="compact", segment_bytes="600", min_cleanable_dirty_ratio="0")
    both = [Record(0, now_ms, b"one", b"both"), Record(0, now_ms + 9, b"other", b"both")]
    await produce(east, topic, both)
    link = mirror_link(pair.east, pair.west, topic)
    await mirrored_once(east, west, link, topic)
    await failover(None, west, link, await find_mirrors(west, link), quiet)
    for client, key in ((east, b"one"), (west, b"other")):
        for number in range(12):
            await produce(client, topic, [Record(0, now_ms, key, b"only-%d" % number)])

    async def cleaned():
        left = [[each for each in await records(side, topic) if each.value == b"both"] for side in clients]
        return [len(each) for each in left] == [1, 1]

    await eventually(cleaned, "both sides have compacted what both had", 20)
    names = await reversible(east, west, link, "west->east")
    (parting,) = await reverse(east, west, names, "west->east", tmp_path, quiet)
    assert (parting.common_end, parting.records) == (2, 12)
