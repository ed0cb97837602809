"""The way back between real clusters: reverse, truncate and restore. What only one side has is saved, and the
roles go back without a loss.
"""

import asyncio
import contextlib
import json
import time

import confluent_kafka
import pytest

from protocol.client import ClusterClient, Committed
from protocol.records import Record, iter_headers
from protocol.types import TopicPartition
from replicator.mirrors import fencing
from replicator.mirrors.assessing import SwitchRefused, find_mirrors, risks
from replicator.mirrors.restoring import truncate_and_restore
from replicator.mirrors.reversing import partings, reverse, reversible
from replicator.mirrors.switching import failover, promote
from tests.cluster.links import create, eventually, fresh, produce, records, some
from tests.cluster.mirrors import (
    clean_often,
    ends,
    idempotent,
    log_bytes,
    mirror_link,
    mirrored,
    mirrored_once,
    mirroring,
    quiet,
    same_logs,
    write,
)

pytestmark = pytest.mark.cluster


async def test_reverse_saves_what_only_the_old_side_has(pair, clients, tmp_path):
    east, west = clients
    topic, link = await mirrored(pair, clients, "reverse", 10)
    await failover(None, west, link, await find_mirrors(west, link), quiet)
    await produce(east, topic, some(4, "only east"))  # the failover could not know of these
    await produce(west, topic, some(6, "west"))
    tp = TopicPartition(topic, 0)
    for group, offset in ((f"{topic}-ahead", 13), (f"{topic}-behind", 4)):
        await east.commit(group, {tp: Committed(offset, -1)})
    back = mirror_link(pair.west, pair.east, topic, back=True)
    names = await reversible(east, west, link, back.name)
    (parting,) = await partings(east, west, names)
    assert (parting.common_end, parting.records) == (10, 4)
    kept = await log_bytes(east, topic)
    full = tmp_path / "full"
    full.write_text("no folder")
    async with mirroring(back.model_copy(update={"on_truncation": "cut"})) as running:
        with pytest.raises(SwitchRefused, match="cannot be saved"):
            await reverse(east, west, names, back.name, full, quiet)

        async def told():
            return "run it again" in running.to_json()["problems"].get(topic, "")

        await eventually(told, "the link back says that its mirror is not ready")
        assert await log_bytes(east, topic) == kept
        names = await reversible(east, west, link, back.name)
        (done,) = await reverse(east, west, names, back.name, tmp_path, quiet)
        await same_logs(west, east, topic)
    assert done.records == 4
    saved = tmp_path / f"{topic}-0" / f"{10:020d}.log"
    assert done.saved_to == str(saved)
    assert kept.endswith(saved.read_bytes())
    assert json.loads(saved.with_suffix(".json").read_text())["to_offset"] == 14
    # Who has read what is cut off has not read what will stand there.
    assert (await east.committed(f"{topic}-ahead"))[tp].offset == 10
    assert (await east.committed(f"{topic}-behind"))[tp].offset == 4
    async with mirroring(back) as running:
        await same_logs(west, east, topic)
        assert running.to_json()["differences"] == []
    assert [r.value for r in await records(east, topic)][10:] == [b"west-%d" % n for n in range(6)]


def _compacted(client, topic):
    """Whether the batch at offset 2 is gone."""

    async def check():
        found = (await client.fetch(TopicPartition(topic, 0), 2)).records
        return next(header.base_offset for _, header in iter_headers(found)) > 2

    return check


async def test_reverse_of_a_topic_that_one_side_has_compacted(pair, clients, tmp_path):
    """The batch before the parting is there no more: nothing speaks against the epochs."""
    east, west = clients
    topic, now_ms = fresh("compacted"), time.time_ns() // 1_000_000
    await create(east, topic, segment_bytes="600", min_cleanable_dirty_ratio="0")
    await asyncio.to_thread(clean_often, pair.west)
    for _ in range(3):
        await produce(east, topic, [Record(0, now_ms, b"key", b"old")])
    link = mirror_link(pair.east, pair.west, topic)
    await mirrored_once(east, west, link, topic)
    await failover(None, west, link, await find_mirrors(west, link), quiet)
    for client in clients:
        for number in range(12):
            await produce(client, topic, [Record(0, now_ms, b"key", b"%d" % number)])
    await west.alter_configs({topic: {"cleanup.policy": "compact"}})

    await eventually(_compacted(west, topic), "the new side has compacted what both had", 20)
    back = mirror_link(pair.west, pair.east, topic, back=True)
    names = await reversible(east, west, link, back.name)
    (parting,) = await reverse(east, west, names, back.name, tmp_path, quiet)
    assert (parting.common_end, parting.records) == (3, 12)


async def test_a_source_that_was_made_again_is_not_taken_for_the_one_that_was_mirrored(pair, clients):
    """Its epochs and offsets may be the same; and the batch before the parting may be compacted away."""
    east, west = clients
    topic, now_ms = fresh("another"), time.time_ns() // 1_000_000
    await asyncio.to_thread(clean_often, pair.west)
    await create(east, topic, segment_bytes="400", min_cleanable_dirty_ratio="0")
    for key in (b"first", b"key", b"key"):
        await produce(east, topic, [Record(0, now_ms, key, b"old")])
    link = mirror_link(pair.east, pair.west, topic)
    await mirrored_once(east, west, link, topic)
    await east.delete_topics([topic])
    await create(east, topic)
    for _ in range(3):
        await produce(east, topic, [Record(0, now_ms + 1, b"key", b"new")])
    mirrors = await find_mirrors(west, link)
    with pytest.raises(SwitchRefused, match="another topic"):
        await risks(east, west, link, mirrors, whole=True)
    await failover(None, west, link, mirrors, quiet)
    names = await reversible(east, west, link, "west->east")
    with pytest.raises(SwitchRefused, match="differ"):
        await partings(east, west, names)
    for number in range(6):
        await produce(west, topic, [Record(0, now_ms, b"key", b"%d" % number)])
    await west.alter_configs({topic: {"cleanup.policy": "compact"}})
    await eventually(_compacted(west, topic), "the new side has compacted the last of them", 20)
    with pytest.raises(SwitchRefused, match="differ"):
        await partings(east, west, names)


async def test_truncate_and_restore_gives_the_roles_back(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("restore")
    await create(east, topic, 2)
    link = mirror_link(pair.east, pair.west, topic)
    back = mirror_link(pair.west, pair.east, topic, back=True)
    for index in (0, 1):
        await produce(east, topic, some(10), index)
    async with mirroring(link):
        await same_logs(east, west, topic, 2)
    await produce(east, topic, some(3, "lost"), 1)
    await failover(east, west, link, await find_mirrors(west, link), quiet)
    for _ in range(3):
        await asyncio.to_thread(write, idempotent(pair.west), topic, ["meanwhile"])
    done = await truncate_and_restore(east, west, link, back, (), tmp_path, quiet, timeout_s=60)
    assert [each.records for each in done.partings] == [0, 3]
    assert done.switched.to_json()["records_lost"] == 0
    assert await asyncio.to_thread(write, idempotent(pair.east), topic, ["home again"]) == [None]
    (refused,) = await asyncio.to_thread(write, idempotent(pair.west), topic, ["no"])
    assert refused.code() == confluent_kafka.KafkaError.POLICY_VIOLATION
    async with mirroring(link) as running:
        await same_logs(east, west, topic, 2)
        assert running.to_json()["differences"] == []
    values = [r.value for index in (0, 1) for r in await records(east, topic, index)]
    assert values.count(b"meanwhile") == 3
    assert values.count(b"home again") == 1
    assert not [value for value in values if value.startswith(b"lost")]
    with contextlib.suppress(SwitchRefused):
        assert await find_mirrors(east, back) == {}
    async with ClusterClient(pair.east) as client:
        assert await ends(client, topic, 2) == await ends(west, topic, 2)


async def test_a_running_link_goes_on_when_its_mirror_comes_back(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("comes-back")
    await create(east, topic)
    link = mirror_link(pair.east, pair.west, topic)
    back = mirror_link(pair.west, pair.east, topic, back=True)
    async with mirroring(link) as running:
        await produce(east, topic, some(10))
        labels = {"link": link.name, "topic": topic, "partition": "0"}

        async def copied():
            return running.registry.get_sample_value("isthmus_link_records_total", labels)

        async def all_are_counted():
            return await copied() == 10

        await eventually(all_are_counted, "the records are counted")
        await failover(east, west, link, await find_mirrors(west, link), quiet)

        async def left():
            return topic in running.to_json()["topics_not_copied"]

        await eventually(left, "the link leaves the topic alone")
        await truncate_and_restore(east, west, link, back, (), tmp_path, quiet, timeout_s=60)
        await produce(east, topic, some(3))
        await same_logs(east, west, topic)
        assert await running.stop() == 0
        assert await copied() == 14  # and the batch with which east has become writable


async def test_truncate_and_restore_goes_on_where_it_was_killed(pair, clients, tmp_path):
    """One topic whose new side was fenced already, one whose old side took writes again, one untouched."""
    east, west = clients
    base = fresh("killed")
    fenced, home, rest = (f"{base}.{name}" for name in ("fenced", "home", "rest"))
    for topic in (fenced, home, rest):
        await create(east, topic)
        await produce(east, topic, some(5))
    link = mirror_link(pair.east, pair.west, f"{base}.*")
    back = mirror_link(pair.west, pair.east, f"{base}.*", back=True)
    async with mirroring(link):
        for topic in (fenced, home, rest):
            await same_logs(east, west, topic)
    await failover(east, west, link, await find_mirrors(west, link), quiet)
    for topic in (fenced, home, rest):
        await asyncio.to_thread(write, idempotent(pair.west), topic, ["meanwhile"])
    names = await reversible(east, west, link, back.name, (fenced, home))
    await reverse(east, west, names, back.name, tmp_path, quiet)
    await fencing.fence(west, east, back, await find_mirrors(east, back, (fenced,)))
    await promote(west, east, back, await find_mirrors(east, back, (home,)), quiet, timeout_s=60)
    assert await asyncio.to_thread(write, idempotent(pair.east), home, ["at home"]) == [None]
    with pytest.raises(SwitchRefused, match="fenced for"):
        await reversible(east, west, link, back.name)  # which another command has to refuse
    done = await truncate_and_restore(east, west, link, back, (), tmp_path, quiet, timeout_s=60)
    assert done.switched.topics == [fenced, home, rest]
    assert [each.records for each in done.partings] == [0, 0]
    async with mirroring(link):
        for topic in (fenced, home, rest):
            assert await asyncio.to_thread(write, idempotent(pair.east), topic, ["after"]) == [None]
            await same_logs(east, west, topic)
        # Once more, as somebody does whose command was killed at its end: all is as it has to be.
        done = await truncate_and_restore(east, west, link, back, (), tmp_path, quiet, timeout_s=60)
        assert (done.switched.topics, done.partings) == ([fenced, home, rest], [])
        await produce(east, rest, some(1, "on and on"))
        await same_logs(east, west, rest)
    assert [r.value for r in await records(east, home, 0)][-3:] == [b"meanwhile", b"at home", b"after"]
