"""The target loses acknowledged records by an unclean election, and others write in their place: offsets tell
nothing, leader epochs do (KIP-101, I7)."""

import itertools

import pytest

from protocol.client import LATEST, ClusterClient, Isolation, NewTopic
from protocol.errors import ProtocolError
from protocol.types import TopicPartition
from tests.cluster.links import Pair, committed, copied_to, create, eventually, fresh, produce, running, some
from tests.support.broker import BrokerProcess, Cluster
from tests.support.zookeeper import fresh_chroot

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

_INTERNAL = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "1",
    "default.replication.factor": "3",
}
_UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


@pytest.fixture
def sides(zookeeper_server, tmp_path):
    """East: one broker. West: three."""
    east = BrokerProcess(tmp_path / "east", fresh_chroot(zookeeper_server), 1)
    west = Cluster(tmp_path / "west", fresh_chroot(zookeeper_server))
    for number in (1, 2, 3):
        west.add(number, settings=_INTERNAL)
    try:
        east.start()
        west.start()
        yield east, west
    finally:
        west.close()
        east.kill()


async def test_it_is_copied_again_by_links_that_run_and_by_links_that_were_stopped(sides):
    source, cluster = sides
    pair = Pair("isthmus", source.bootstrap, cluster.brokers[3].bootstrap)
    kinds = list(itertools.product((False, True), ("runs", "stopped")))
    links = {kind: pair.link(fresh("lost"), exactly_once=kind[0], replication_factor=3) for kind in kinds}
    topics = {kind: link.topics[0] for kind, link in links.items()}
    copies = {kind: link.names().at_target(topics[kind]) for kind, link in links.items()}
    values = {tag: some(count, tag) for tag, count in (("kept", 20), ("lost", 15), ("after", 5))}
    others = some(40, "others")
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:

        async def write(tag, count):
            for kind in kinds:
                await produce(east, topics[kind], values[tag])
                await copied_to(west, links[kind], topics[kind], count)

        async def led_by(number, isr):
            for copy in copies.values():
                at = (await west.metadata([copy])).topics[copy].partitions[0]
                if (at.leader, at.isr) != (number, isr):
                    return False
            return True

        for kind in kinds:
            await create(east, topics[kind])
            await west.create_topics([NewTopic(copies[kind], assignment={0: [1, 2]}, configs=_UNCLEAN)])
        runs = {kind: running(link) for kind, link in links.items()}
        entered = {kind: await run.__aenter__() for kind, run in runs.items()}
        await write("kept", 20)
        cluster.brokers[2].kill()
        await eventually(lambda: led_by(1, (1,)), "the second broker is out of sync")
        await write("lost", 35)
        for kind in kinds:
            if kind[1] == "stopped":
                assert await entered[kind].stop() == 0

        cluster.brokers[1].kill()
        cluster.brokers[2].start()
        await eventually(lambda: led_by(2, (2,)), "the one with less leads")
        for copy in copies.values():

            async def written(copy=copy):
                try:
                    await produce(west, copy, others)
                except ProtocolError:
                    return False
                return True

            await eventually(written, "others write")
        for kind in kinds:
            if kind[1] == "stopped":
                runs[kind] = running(links[kind])
                entered[kind] = await runs[kind].__aenter__()
        expected = [one.value for one in (*values["kept"], *others, *values["lost"])]

        async def all_there(expected):
            return all(
                [
                    len(await committed(cluster.brokers[2].bootstrap, copy)) >= len(expected)
                    for copy in copies.values()
                ]
            )

        await eventually(lambda: all_there(expected), "what was lost is copied again", 60)
        cluster.brokers[1].start()
        await write("after", 40)
        expected += [one.value for one in values["after"]]
        for kind in kinds:
            found = [value for _, _, value, _ in await committed(cluster.brokers[2].bootstrap, copies[kind])]
            assert found == expected, kind
            assert not entered[kind].partition(topics[kind])["gaps"]
            assert await entered[kind].stop() == 0


async def test_a_transaction_whose_end_is_lost_is_aborted_and_copied_again(sides):
    """The follower has its records and not its marker: nobody would end it, readers would wait for ever."""
    source, cluster = sides
    pair = Pair("isthmus", source.bootstrap, cluster.brokers[3].bootstrap)
    link = pair.link(fresh("hung"), exactly_once=True, replication_factor=3, transaction_interval_s=4)
    topic, copy = link.topics[0], link.names().at_target(link.topics[0])
    tp = TopicPartition(copy, 0)
    values = {tag: some(count, tag) for tag, count in (("kept", 20), ("hung", 15), ("after", 5))}
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:

        async def led_by(number, isr):
            at = (await west.metadata([copy])).topics[copy].partitions[0]
            return (at.leader, at.isr) == (number, isr)

        async def readable():
            return (await west.offset(tp, LATEST, isolation=Isolation.READ_COMMITTED)).offset

        await create(east, topic)
        await west.create_topics([NewTopic(copy, assignment={0: [1, 2]}, configs=_UNCLEAN)])
        async with running(link) as run:
            await produce(east, topic, values["kept"])
            await copied_to(west, link, topic, 20)
            before = await readable()
            await produce(east, topic, values["hung"])

            async def on_both():
                return (await west.offset(tp, LATEST)).offset >= before + 15

            await eventually(on_both, "both replicas have the records")
            assert await readable() == before, "and the transaction is open"
            cluster.brokers[2].kill()
            await copied_to(west, link, topic, 35)
            await eventually(lambda: led_by(1, (1,)), "the second broker is out of sync")
            assert await run.stop() == 0
        cluster.brokers[1].kill()
        cluster.brokers[2].start()
        await eventually(lambda: led_by(2, (2,)), "the one without the marker leads")
        async with running(link) as run:  # another producer id: its markers end nothing of the former one
            await produce(east, topic, values["after"])
            expected = [one.value for tag in values for one in values[tag]]

            async def all_there():
                return len(await committed(cluster.brokers[2].bootstrap, copy)) >= len(expected)

            await eventually(all_there, "all is readable", 90)
            found = [value for _, _, value, _ in await committed(cluster.brokers[2].bootstrap, copy)]
            assert found == expected
            assert await run.stop() == 0


async def test_what_stands_there_again_is_not_copied_behind_it(sides):
    """The broker whose records were taken for lost leads again, and has not heard of the one in between."""
    source, cluster = sides
    pair = Pair("isthmus", source.bootstrap, cluster.brokers[3].bootstrap)
    links = {
        once: pair.link(fresh("again"), exactly_once=once, replication_factor=3) for once in (False, True)
    }
    copies = {once: link.names().at_target(link.topics[0]) for once, link in links.items()}
    values = {
        tag: some(count, tag) for tag, count in (("kept", 20), ("lost", 15), ("between", 3), ("after", 5))
    }
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:

        async def write(tag, count):
            for link in links.values():
                await produce(east, link.topics[0], values[tag])
                await copied_to(west, link, link.topics[0], count)

        async def led_by(number):
            found = (await west.metadata(list(copies.values()))).topics
            rows = [found[copy].partitions[0] for copy in copies.values()]
            return all((at.leader, at.isr) == (number, (number,)) for at in rows)

        async def all_there(number, count):
            bootstrap = cluster.brokers[number].bootstrap
            return all([len(await committed(bootstrap, copy)) >= count for copy in copies.values()])

        for once, link in links.items():
            await create(east, link.topics[0])
            await west.create_topics([NewTopic(copies[once], assignment={0: [1, 2]}, configs=_UNCLEAN)])
        async with running(links[False]) as first, running(links[True]) as second:
            await write("kept", 20)
            cluster.brokers[2].kill()
            await eventually(lambda: led_by(1), "the second broker is out of sync")
            await write("lost", 35)
            cluster.brokers[1].kill()
            cluster.brokers[2].start()
            await eventually(lambda: led_by(2), "the one with less leads")
            await eventually(lambda: all_there(2, 35), "what was lost is copied again", 60)
            await write("between", 38)
            cluster.brokers[2].kill()
            cluster.brokers[1].start()
            await eventually(lambda: led_by(1), "the first one leads again, with all it had")
            await eventually(lambda: all_there(1, 38), "what it does not have is copied again", 60)
            await write("after", 43)
            expected = [one.value for tag in values for one in values[tag]]
            for once, run in ((False, first), (True, second)):
                found = [
                    value for _, _, value, _ in await committed(cluster.brokers[1].bootstrap, copies[once])
                ]
                assert found == expected, once
                assert not run.partition(links[once].topics[0])["gaps"]
                assert await run.stop() == 0
