"""A target broker that says nothing any more holds up its own partitions, and no others (I10)."""

import asyncio
import logging
import time
from collections import Counter

import pytest

from protocol.client import ClusterClient, CoordinatorKind, NewTopic
from protocol.types import TopicPartition
from replicator.progress import read_ledgers
from tests.cluster.links import (
    Pair,
    committed,
    content,
    copied_to,
    create,
    eventually,
    fresh,
    produce,
    running,
    some,
)
from tests.support.broker import BrokerProcess, Cluster
from tests.support.slow import slow
from tests.support.zookeeper import fresh_chroot

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

_log = logging.getLogger("isthmus.tests")
PARTITIONS = 6
COUNT = 40
_REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "default.replication.factor": "3",
}


@pytest.fixture(scope="module")
def sides(zookeeper_server, tmp_path_factory):
    """East: one broker. West: three."""
    east = BrokerProcess(tmp_path_factory.mktemp("east"), fresh_chroot(zookeeper_server), 1)
    west = Cluster(tmp_path_factory.mktemp("west"), fresh_chroot(zookeeper_server))
    for number in (1, 2, 3):
        west.add(number, settings=_REPLICATED)
    try:
        east.start()
        west.start()
        yield east, west
    finally:
        east.kill()
        west.close()


async def _leads_nothing_of_the_links_own(client, link):
    """A broker that the link's own records and its group do not need."""
    topics = (await client.metadata([link.progress_topic])).topics
    busy = {topics[link.progress_topic].partitions[0].leader}
    busy.add(await client.coordinator(link.workers_group, CoordinatorKind.GROUP))
    return next(number for number in (1, 2, 3) if number not in busy)


async def _ends(client, link, topic):
    ledgers = await read_ledgers(client, link.name)
    return {tp.partition: ledger.next_source_offset for tp, ledger in ledgers.items() if tp.topic == topic}


@slow("three brokers, one of them silent for many seconds")
@pytest.mark.parametrize("size", [1, 20_000], ids=["small", "more than may be on its way"])
@pytest.mark.parametrize("exactly_once", [False, True])
async def test_partitions_of_other_brokers_go_on_while_one_is_stopped_and_all_arrives_once(
    sides, exactly_once, size
):
    """Also where what is on its way to the silent one leaves no room for anything else."""
    east_broker, west_cluster = sides
    pair = Pair("isthmus", east_broker.bootstrap, west_cluster.bootstrap)
    topic = fresh("isolated")
    flow = {"max_bytes_in_flight": 1 << 20}
    link = pair.link(topic, exactly_once=exactly_once, internal_replication_factor=3, flow=flow)
    mirror = f"{link.source.alias}.{topic}"
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic, PARTITIONS)
        await west.create_topics([NewTopic(mirror, PARTITIONS, 1, {})])
        for number in range(PARTITIONS):
            await produce(east, topic, some(COUNT, "before"), number)
        async with running(link) as run:
            for number in range(PARTITIONS):
                await copied_to(west, link, topic, COUNT, number)
            silent = await _leads_nothing_of_the_links_own(west, link)
            leaders = {
                number: row.leader
                for number, row in (await west.metadata([mirror])).topics[mirror].partitions.items()
            }
            assert set(Counter(leaders.values()).values()) == {PARTITIONS // 3}
            stopped = west_cluster.brokers[silent]
            stopped.pause()
            try:
                begun = time.monotonic()
                for turn in range(5):
                    for number in range(PARTITIONS):
                        await produce(east, topic, some(COUNT, f"during{turn}" + "x" * size), number)
                end = COUNT * 6

                async def others_arrive():
                    ends = await _ends(west, link, topic)
                    return all(ends[number] >= end for number, leader in leaders.items() if leader != silent)

                await eventually(others_arrive, "partitions of the other brokers go on", 180)
                _log.info("the others went on within %.1f s", time.monotonic() - begun)
                ends = await _ends(west, link, topic)
                assert all(ends[n] < end for n, leader in leaders.items() if leader == silent)
                await asyncio.sleep(3)  # long enough for requests of the stopped one to be in doubt
            finally:
                stopped.resume()
            for number in range(PARTITIONS):
                await copied_to(west, link, topic, end, number)
            assert await run.stop() == 0
        for number in range(PARTITIONS):
            found = await committed(pair.west, mirror, number)
            assert found == await content(east, topic, number)
        ledgers = await read_ledgers(west, link.name)
        assert [ledgers[TopicPartition(topic, n)].records for n in range(PARTITIONS)] == [end] * PARTITIONS
