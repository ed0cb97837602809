"""A first start at the latest records while a partition of the source has no leader: it waits alone (I10)."""

import pytest

from protocol.client import ClusterClient, NewTopic
from protocol.errors import ProtocolError
from tests.cluster.links import Pair, content, copied_to, eventually, fresh, produce, running, some
from tests.support.broker import BrokerProcess, Cluster
from tests.support.slow import slow
from tests.support.zookeeper import fresh_chroot

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.fixture
def sides(zookeeper_server, tmp_path):
    """East: two brokers. West: one."""
    east = Cluster(tmp_path / "east", fresh_chroot(zookeeper_server))
    for number in (1, 2):
        east.add(number, settings={"offsets.topic.replication.factor": "1"})
    west = BrokerProcess(tmp_path / "west", fresh_chroot(zookeeper_server), 1)
    try:
        east.start()
        west.start()
        yield east, west
    finally:
        east.close()
        west.kill()


@pytest.mark.parametrize(
    "exactly_once", [False, pytest.param(True, marks=slow("the same with transactions: brokers start"))]
)
async def test_it_begins_where_it_ended_at_the_start_and_the_others_do_not_wait(sides, exactly_once):
    cluster, mirror = sides
    pair = Pair("isthmus", cluster.brokers[1].bootstrap, mirror.bootstrap)
    topic = fresh("leaderless")
    link = pair.link(topic, start="latest", exactly_once=exactly_once)
    copy = link.names().at_target(topic)
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await east.create_topics([NewTopic(topic, assignment={0: [1], 1: [2]})])
        for partition in (0, 1):
            await produce(east, topic, some(30, "before"), partition)
        cluster.brokers[2].kill()

        async def leaderless():
            return (await east.metadata([topic])).topics[topic].partitions[1].leader == -1

        await eventually(leaderless, "the partition has no leader")
        async with running(link) as run:

            async def one_copies_and_one_waits():
                waits = run.partition(topic, 1).get("reason", "")
                return run.partition(topic, 0).get("state") == "running" and "where it ended then" in waits

            await eventually(one_copies_and_one_waits, "one partition waits, the other copies")
            await produce(east, topic, some(5, "after"), 0)
            await copied_to(west, link, topic, 35)
            assert await run.stop() == 0
        assert len(await content(west, copy, 0)) == 5

        cluster.brokers[2].start()
        values = some(7, "meanwhile")

        async def written():
            try:
                return await produce(east, topic, values, 1) == 30
            except ProtocolError:
                return False

        await eventually(written, "the partition has a leader again")
        async with running(link):
            await copied_to(west, link, topic, 37, 1)
        assert [value for _, _, value, _ in await content(west, copy, 1)] == [one.value for one in values]
