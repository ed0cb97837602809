"""Changes of roles that are broken off and run again, that two processes make at once, and topics that grow
or lose their beginning meanwhile: nothing is called whole that was not asked about.
"""

import asyncio
import contextlib
import time

import pytest

from protocol.client import EARLIEST, ClusterClient, NewTopic
from protocol.errors import KafkaError
from protocol.types import TopicPartition
from replicator.mirrors import fencing, switching
from replicator.mirrors.assessing import SwitchRefused, find_mirrors, risks
from replicator.mirrors.lineage import next_era
from replicator.mirrors.restoring import truncate_and_restore
from replicator.mirrors.reversing import partings, reverse, reversible
from replicator.mirrors.switching import failover, promote
from replicator.mirrors.terms import raised
from replicator.mirrors.topics import mirror_text
from tests.cluster.links import create, eventually, fresh, produce, records, some
from tests.cluster.mirrors import (
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
from tests.support.batches import batch
from tests.support.slow import slow

pytestmark = pytest.mark.cluster


async def grown(client, topic):
    """Another partition, with three records."""
    await client.create_partitions({topic: 2})
    await produced(client, topic, some(3, "grown"), 1)


async def produced(client, topic, values, partition):
    """To a partition that was made just now."""

    async def written():
        with contextlib.suppress(KafkaError):
            await produce(client, topic, values, partition)
            return True

    await eventually(written, "the new partition is written to")


async def ended(client, mirrors, topic, partition=0):
    """As a promotion that was killed before the topic was writable leaves a partition."""
    tp, text = TopicPartition(topic, partition), mirrors[topic].text
    stand = await client.mirror_stand(tp, text)
    era = next_era(max(stand.leader_epoch, stand.last_epoch))
    stand = (await raised(client, {tp: text}, {tp: era}))[tp]
    await client.settle_mirror(tp, text, stand.leader_epoch)


async def test_partitions_that_the_source_got_while_no_link_ran_are_promoted_too(pair, clients):
    east, west = clients
    topic, link = await mirrored(pair, clients, "grown", 5)
    await grown(east, topic)
    mirrors = await find_mirrors(west, link)
    found = await risks(east, west, link, mirrors)
    assert [(risk.partition, risk.records) for risk in found] == [(0, 0), (1, 3)]
    done = await promote(east, west, link, mirrors, quiet, timeout_s=60)
    assert done.to_json()["records_lost"] == 0
    assert [r.value for r in await records(west, topic, 1)] == [f"grown-{n}".encode() for n in range(3)]


async def test_a_promotion_that_was_killed_half_way_goes_on(pair, clients):
    """One partition has begun a term of its own, its batch behind the source's end; the other not yet."""
    east, west = clients
    topic = fresh("half-way")
    await create(east, topic, 2)
    for index in (0, 1):
        await produce(east, topic, some(5), index)
    link = mirror_link(pair.east, pair.west, topic)
    async with mirroring(link):
        await same_logs(east, west, topic, 2)
    await produce(east, topic, some(2, "left"), 1)
    mirrors = await find_mirrors(west, link)
    await fencing.fence(east, west, link, mirrors)
    await ended(west, mirrors, topic)
    done = await promote(east, west, link, mirrors, quiet, timeout_s=30)
    assert done.to_json()["records_lost"] == 0
    assert [r.value for r in await records(west, topic, 1)][5:] == [b"left-0", b"left-1"]
    assert await asyncio.to_thread(write, idempotent(pair.west), topic, ["new"]) == [None]


async def test_of_two_promotions_at_once_the_one_that_fails_does_not_open_the_source(
    pair, clients, monkeypatch
):
    east, west = clients
    topic, link = await mirrored(pair, clients, "two", 5)
    mirrors = await find_mirrors(west, link)
    waits, goes_on = asyncio.Event(), asyncio.Event()
    copy = switching._copy_groups

    async def slowly(*arguments):
        if not waits.is_set():
            waits.set()
            await goes_on.wait()
        return await copy(*arguments)

    monkeypatch.setattr(switching, "_copy_groups", slowly)
    first = asyncio.create_task(promote(east, west, link, mirrors, quiet, timeout_s=30))
    await waits.wait()
    assert (await promote(east, west, link, mirrors, quiet, timeout_s=30)).fenced
    goes_on.set()
    with pytest.raises((SwitchRefused, KafkaError)):
        await first
    assert mirror_text((await east.describe_configs([topic]))[topic]) is not None


async def test_truncate_and_restore_goes_on_where_the_way_home_was_killed(pair, clients, tmp_path):
    east, west = clients
    topic, link = await mirrored(pair, clients, "way-home", 5)
    back = mirror_link(pair.west, pair.east, topic, back=True)
    await failover(east, west, link, await find_mirrors(west, link), quiet)
    await produce(west, topic, some(2, "west"))
    await reverse(east, west, await reversible(east, west, link, back.name), back.name, tmp_path, quiet)
    await mirrored_once(west, east, back, topic)
    mirrors = await find_mirrors(east, back)
    await fencing.fence(west, east, back, mirrors)
    await ended(east, mirrors, topic)
    done = await truncate_and_restore(east, west, link, back, (), tmp_path, quiet, timeout_s=30)
    assert done.switched.to_json()["records_lost"] == 0
    assert await asyncio.to_thread(write, idempotent(pair.east), topic, ["home"]) == [None]
    await mirrored_once(east, west, link, topic)


@pytest.mark.parametrize("deleted", [13, 12], ids=["all", "the beginning"])
async def test_an_old_side_without_the_parting_has_no_hole_afterwards(pair, clients, tmp_path, deleted):
    """Retention went on there, behind the offset where both parted."""
    east, west = clients
    topic, link = await mirrored(pair, clients, "emptied", 10)
    back = mirror_link(pair.west, pair.east, topic, back=True)
    await failover(None, west, link, await find_mirrors(west, link), quiet)
    for number in range(3):
        await produce(east, topic, some(1, f"only east {number}"))
    await produce(west, topic, some(20, "west"))
    await east.delete_records({TopicPartition(topic, 0): deleted})
    names = await reversible(east, west, link, back.name)
    (parting,) = await partings(east, west, names)
    assert parting.records == 13 - deleted
    await reverse(east, west, names, back.name, tmp_path, quiet)
    async with mirroring(back):

        async def whole():
            return [r.value for r in await records(east, topic)][-20:] == [b"west-%d" % n for n in range(20)]

        await eventually(whole, "the old side has all that was written at the new one", 15)
    assert (await log_bytes(west, topic)).endswith(await log_bytes(east, topic))


async def test_partitions_that_the_new_side_got_come_home_too(pair, clients, tmp_path):
    east, west = clients
    topic, link = await mirrored(pair, clients, "grown-there", 5)
    back = mirror_link(pair.west, pair.east, topic, back=True)
    await failover(east, west, link, await find_mirrors(west, link), quiet)
    await grown(west, topic)
    done = await truncate_and_restore(east, west, link, back, (), tmp_path, quiet, timeout_s=30)
    assert done.switched.to_json()["records_lost"] == 0
    assert [r.value for r in await records(east, topic, 1)] == [f"grown-{n}".encode() for n in range(3)]


@pytest.mark.timeout(180)
@slow("half a minute until a follower that stands still is left out")
async def test_what_followers_of_the_source_do_not_have_yet_is_waited_for(broker, start_three):
    """A source that refuses writers still has records that no reader sees, until a slow follower has them or
    is left out; then they are acknowledged."""
    three = start_three({"replica.lag.time.max.ms": "20000", "zookeeper.session.timeout.ms": "20000"})
    topic = fresh("followers")
    tp = TopicPartition(topic, 0)
    link = mirror_link(three.bootstrap, broker.bootstrap, topic, sync_group_offsets=False)
    async with ClusterClient(three.bootstrap) as east, ClusterClient(broker.bootstrap) as west:
        await east.create_topics([NewTopic(topic, 1, 3, {})])
        await produce(east, topic, some(3))
        await mirrored_once(east, west, link, topic)
        busy = {(await east.leader(tp)).node, (await east.metadata([])).controller_id}
        slow = next(each for number, each in three.brokers.items() if number not in busy)
        producer = idempotent(three.bootstrap)
        assert await asyncio.to_thread(write, producer, topic, ["connected"]) == [None]
        slow.pause()
        try:
            writing = asyncio.create_task(asyncio.to_thread(write, producer, topic, ["slow"]))
            await asyncio.sleep(1)  # no reader can see that it is there
            done = await promote(east, west, link, await find_mirrors(west, link), quiet, timeout_s=60)
        finally:
            slow.resume()
        assert await writing == [None]
        assert done.to_json()["records_lost"] == 0
        assert [r.value for r in await records(west, topic)][-1] == b"slow"


async def test_producers_of_a_source_are_forgotten_where_it_has_let_go_of_all_records(pair, clients):
    """Their ids mean others at the target, whose first batches would be taken for repeats."""
    east, west = clients
    topic = fresh("let-go")
    tp = TopicPartition(topic, 0)
    await create(east, topic)
    link = mirror_link(pair.east, pair.west, topic)

    def first():
        return batch(1, timestamps=[time.time_ns() // 1_000_000], producer=(4_000_000, 0, 0))

    await east.produce(tp, first())
    await produce(east, topic, some(1))
    async with mirroring(link):
        await same_logs(east, west, topic)
        await east.delete_records({tp: 2})

        async def followed():
            return (await west.list_offsets({tp: EARLIEST}))[tp].offset == 2

        await eventually(followed, "the mirror has let go as well")
    await failover(None, west, link, await find_mirrors(west, link), quiet)
    end = (await ends(west, topic))[0]
    await west.produce(tp, first())
    assert await ends(west, topic) == [end + 1]


async def test_an_empty_mirror_that_was_ended_takes_nothing_from_its_source_either(pair, clients):
    """Else what a link brings before the topic is writable stays open, and its producers known."""
    east, west = clients
    topic = fresh("empty")
    await create(east, topic)
    link = mirror_link(pair.east, pair.west, topic)
    async with mirroring(link) as running:
        await same_logs(east, west, topic)
        mirrors = await find_mirrors(west, link)
        await ended(west, mirrors, topic)
        await produce(east, topic, some(3))

        async def told():
            (part,) = running.to_json()["partitions"].values()
            return "has begun here" in (part["problem"] or "")

        await eventually(told, "the link says that it copies no more")
        assert await ends(west, topic) == [1]
        done = await promote(east, west, link, mirrors, quiet, timeout_s=30)  # goes on, with what came since
        assert done.to_json()["records_lost"] == 0
    assert [r.value for r in await records(west, topic)] == [b"v-0", b"v-1", b"v-2"]


async def test_a_failover_goes_on_when_a_leader_changes_in_the_middle(pair, clients, monkeypatch):
    """The term that was raised is over before the batch that ends the mirror is written in it."""
    east, west = clients
    topic = fresh("elected")
    await create(east, topic, 2)
    link = mirror_link(pair.east, pair.west, topic)
    for index in (0, 1):
        await produce(east, topic, some(3), index)
    async with mirroring(link):
        await same_logs(east, west, topic, 2)
    mirrors = await find_mirrors(west, link)
    _elect_once(west, monkeypatch)
    async with asyncio.timeout(20):
        await failover(None, west, link, mirrors, quiet)
    for index in (0, 1):
        assert await asyncio.to_thread(write, idempotent(pair.west), topic, ["new"], index) == [None]


def _elect_once(client, monkeypatch):
    """A leader changes between the term that was raised and what is to be done in it."""
    settle, elected = client.settle_mirrors, []

    async def after_an_election(wanted, **settings):
        if not elected:
            tp = max(wanted)
            elected.append(tp)
            await raised(client, {tp: wanted[tp].source}, {tp: wanted[tp].leader_epoch + 1})
        return await settle(wanted, **settings)

    monkeypatch.setattr(client, "settle_mirrors", after_an_election)


async def test_a_way_back_goes_on_when_a_leader_changes_in_the_middle(pair, clients, tmp_path, monkeypatch):
    east, west = clients
    topic, link = await mirrored(pair, clients, "elected-back", 3)
    await produce(east, topic, some(2, "only east"))
    await failover(None, west, link, await find_mirrors(west, link), quiet)
    names = await reversible(east, west, link, "west->east")
    _elect_once(east, monkeypatch)
    (cut,) = await reverse(east, west, names, "west->east", tmp_path, quiet)
    assert cut.records == 2
    assert await ends(east, topic) == [3]


async def test_an_old_side_with_more_partitions_is_told_so_before_anything_is_changed(
    pair, clients, tmp_path
):
    east, west = clients
    topic, link = await mirrored(pair, clients, "more-there", 3)
    await failover(None, west, link, await find_mirrors(west, link), quiet)
    await east.create_partitions({topic: 2})
    with pytest.raises(SwitchRefused, match="2 partitions"):
        await partings(east, west, await reversible(east, west, link, "west->east"))


@pytest.mark.parametrize("epochs", ["known", "not known"])
async def test_a_partition_that_both_sides_made_is_saved_and_mirrored_anew(pair, clients, tmp_path, epochs):
    """The topic had grown at the old side, and a failover came before its mirror did; the new side was given
    as many, as the refusal says. What each wrote there is its own."""
    east, west = clients
    topic = fresh("grown-twice")
    tp = TopicPartition(topic, 1)
    await create(east, topic)
    await produce(east, topic, some(3))
    link = mirror_link(pair.east, pair.west, topic)
    back = mirror_link(pair.west, pair.east, topic, back=True)
    await mirrored_once(east, west, link, topic)
    await grown(east, topic)
    if epochs == "not known":
        await east.raise_mirrors({tp: 7})
        await produced(east, topic, some(2, "later"), 1)
    await failover(None, west, link, await find_mirrors(west, link), quiet)
    await west.create_partitions({topic: 2})
    await produced(west, topic, some(4, "west"), 1)
    names = await reversible(east, west, link, back.name)
    cut = {each.partition: each for each in await reverse(east, west, names, back.name, tmp_path, quiet)}
    assert (cut[0].records, cut[1].records) == (0, 3 if epochs == "known" else 5)
    assert cut[1].saved_to is not None
    await mirrored_once(west, east, back, topic)
    assert [r.value for r in await records(east, topic, 1)] == [b"west-%d" % n for n in range(4)]
