"""Failures that users of other replicators have reported, with real clusters (docs/known-failures.md)."""

import asyncio
import contextlib

import pytest

from protocol.client import ClusterClient, Committed, NewTopic
from protocol.records import Record
from protocol.types import TopicPartition
from replicator.drift import found_now
from replicator.layouts import Heartbeat
from replicator.progress import read_ledgers
from tests.chaos.network import Fault, Network, both
from tests.chaos.world import RelayedBroker
from tests.cluster.links import (
    Pair,
    copied_to,
    create,
    eventually,
    fresh,
    produce,
    running,
    some,
)
from tests.support.broker import Cluster
from tests.support.slow import SLOW, slow
from tests.support.zookeeper import fresh_chroot
from topology.runtime import free_port
from transfer.kafka.fetch_size import FetchSize

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

T0 = 1_700_000_000_000
GROUPS = 5_000 if SLOW else 300


async def test_thousands_of_groups_are_all_synced(pair, clients):
    """KAFKA-17232: one request about all of them runs into its time limit, and none is synced ever after."""
    east, west = clients
    topic = fresh("many-groups")
    await create(east, topic)
    await produce(east, topic, some(50))
    names = [f"{topic}-{number}" for number in range(GROUPS)]
    here = TopicPartition(topic, 0)
    for start in range(0, GROUPS, 50):
        some_names = names[start : start + 50]
        await asyncio.gather(*(east.commit(name, {here: Committed(len(name))}) for name in some_names))
    link = pair.link(f"{topic}.*")
    there = TopicPartition(f"{link.source.alias}.{topic}", 0)
    async with running(link) as running_link:

        async def all_synced():
            groups = running_link.status.to_json().get("groups", {})
            return sum(name in groups and groups[name]["reason"] is None for name in names) == GROUPS

        await eventually(all_synced, "every group is in sync", 60 if GROUPS < 1_000 else 400)
        for name in (names[0], names[GROUPS // 2], names[-1]):
            assert (await west.committed(name))[there].offset == len(name)


async def test_partitions_led_by_a_broker_that_joined_later_are_copied(zookeeper_server, pair, tmp_path):
    """Metadata of the start is not enough: the source grows, and partitions move to the new broker."""
    cluster = Cluster(tmp_path, fresh_chroot(zookeeper_server))
    cluster.add(1)
    later = cluster.add(2)
    topic = fresh("joined-later")
    try:
        first = await asyncio.to_thread(cluster.brokers[1].start)
        async with ClusterClient(first.bootstrap) as east, ClusterClient(pair.west) as west:
            await create(east, topic)
            await produce(east, topic, some(10))
            link = Pair("isthmus", first.bootstrap, pair.west).link(f"{topic}.*")
            async with running(link):
                await copied_to(west, link, topic, 10)
                await asyncio.to_thread(later.start)

                async def joined():
                    return 2 in (await east.metadata(None)).brokers

                await eventually(joined, "the second broker", 60)
                await east.create_topics([NewTopic(f"{topic}-new", assignment={0: [2]})])
                await east.create_partitions({topic: 2}, assignments={topic: [[2]]})
                for name, partition in ((f"{topic}-new", 0), (topic, 1)):
                    await produce(east, name, some(20), partition)
                    await copied_to(west, link, name, 20, partition)
                await produce(east, topic, some(5))
                await copied_to(west, link, topic, 15)
    finally:
        await asyncio.to_thread(cluster.close)


@pytest.fixture
def far(zookeeper_server, tmp_path):
    """A broker that everybody reaches through a relay, whose address it tells, and that relay."""
    with contextlib.closing(Network()) as network:
        broker = RelayedBroker(
            tmp_path,
            fresh_chroot(zookeeper_server),
            1,
            arguments=("--advertised-listener", f"PLAINTEXT://127.0.0.1:{network.listen('far')}"),
        )
        broker.port = free_port()
        network.point("far", broker.port)
        try:
            broker.start()
            yield f"127.0.0.1:{network.ports['far']}", network
        finally:
            broker.kill()


@slow("tests/unit/transfer/test_fetch_size.py has the rule")
async def test_a_long_round_trip_does_not_bound_the_rate(far, pair, monkeypatch):
    """A partition that moves one megabyte for each round trip cannot keep up, however wide the path is."""
    address, network = far
    topic, sizes = fresh("far-away"), [0]
    answered = FetchSize.answered

    def noted(self, size, took_s):
        sizes.append(size)
        answered(self, size, took_s)

    monkeypatch.setattr(FetchSize, "answered", noted)
    async with ClusterClient(address) as east, ClusterClient(pair.west) as west:
        await create(east, topic)
        batch = [Record(0, T0, None, bytes(10_000)) for _ in range(50)]
        for _ in range(48):
            await produce(east, topic, batch)
        link = Pair("isthmus", address, pair.west).link(topic)
        with network.disturbed(both("client", "far"), Fault(delay_s=0.1)):
            async with running(link):
                await eventually(lambda: _is_copied(west, link, topic, 2400), "all is copied", 120)
    assert max(sizes) > 3_000_000


async def _is_copied(client, link, topic, end):
    ledger = (await read_ledgers(client, link.name)).get(TopicPartition(topic, 0))
    return ledger is not None and ledger.next_source_offset >= end


async def test_a_users_topic_that_is_called_like_heartbeats_is_its_own(pair, clients):
    """MirrorMaker 2 copies `my.heartbeats` against `topics`, taking it for a cluster upstream."""
    east, west = clients
    mark = fresh("beats").replace("-", "")
    own, upstream, asked_for = f"my{mark}.heartbeats", f"north{mark}.heartbeats", fresh("asked-for")
    for name in (own, upstream, asked_for):
        await create(east, name)
    await produce(east, own, some(3))
    beat = Heartbeat("south", f"north{mark}", T0)
    await produce(east, upstream, [Record(0, T0, beat.key(), beat.value())])
    await produce(east, asked_for, some(3))
    link = pair.link(asked_for)
    found = await found_now(east, west, link)
    assert upstream in found.wanted
    assert "holds no heartbeats" in found.refused[own]
    async with running(link) as running_link:
        await copied_to(west, link, upstream, 1)
        await copied_to(west, link, asked_for, 3)
        assert "holds no heartbeats" in running_link.status.to_json()["topics_not_copied"][own]
    assert f"{link.source.alias}.{own}" not in (await west.metadata(None)).topics
    async with running(pair.link(f"{own}|{asked_for}", number=int(link.source.alias[4:]))):
        await copied_to(west, link, own, 3)
