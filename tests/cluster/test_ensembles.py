"""Ensembles of real ZooKeeper servers: what lost quorums and cuts do to brokers, and two sides that believe.

I3 with real processes: who may have lost leadership acknowledges nothing, and comes back by itself.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from broker.control.embedded_zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError
from broker.control.zookeeper_ensemble import Ensemble
from protocol.errors import ErrorCode
from tests.support.broker import Cluster
from tests.support.ensemble import TestEnsemble
from tests.support.proxy import LossyProxy
from tests.support.slow import SLOW, slow
from tests.support.three_brokers import QUICK, consume, create, in_sync, leader, produce
from tests.support.waiting import eventually, wait_until
from tests.support.writer import STAMPED, Writer
from tests.support.zookeeper import fresh_chroot

pytestmark = pytest.mark.cluster
SESSION_S = 3.0
SETTINGS = {**QUICK, "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000))}
SERVERS_OF_A_SITE = 3 if SLOW else 1


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[TestEnsemble]:
    with TestEnsemble(tmp_path, {"one": (1, 2, 3)}) as made:
        yield made


@pytest.fixture
async def proxy(zookeeper_server: EmbeddedZooKeeper) -> AsyncIterator[LossyProxy]:
    async with LossyProxy(zookeeper_server.host, zookeeper_server.port) as made:
        yield made


async def until(condition: object, what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what)


async def test_without_a_quorum_brokers_stop_in_time_and_come_back_by_themselves(
    ensemble: TestEnsemble, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path / "brokers", f"{ensemble.connect}/kafka")
    try:
        for number in (1, 2, 3):
            cluster.add(number, settings=SETTINGS)
        await asyncio.to_thread(cluster.start)
        await asyncio.to_thread(create, cluster, "t", (1, 2, 3), config=STAMPED)
        pids = [broker.pid for broker in cluster.brokers.values()]
        async with Writer(cluster.brokers[1].port, "t") as writer:
            await until(lambda: len(writer.acknowledged) > 20, "writes")
            ensemble.servers[1].pause()
            await until(lambda: time.time() - writer.last < 1, "writes with two of three servers")
            ensemble.servers[2].pause()
            stopped = time.time()
            await until(lambda: len(writer.refused) > 200, "refused writes")
            assert writer.last - stopped < SESSION_S
            assert {code for _, code in writer.refused} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
            for number in (1, 2):
                ensemble.servers[number].resume()
            resumed = time.time()
            await until(
                lambda: writer.last > resumed or leader(cluster, "t") != 1, "writes, or another leader"
            )
        assert [broker.pid for broker in cluster.brokers.values()] == pids
        assert "take no writes here" in cluster.brokers[1].output
        # Sessions of the others may end now, too: who leads moves until all are back.
        assert len(await asyncio.to_thread(produce, cluster, "t", [b"again"] * 5)) == 5
    finally:
        cluster.close()


async def test_a_leader_that_zookeeper_does_not_hear_is_silent_before_another_one_leads(
    proxy: LossyProxy, zookeeper_server: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    """What it acknowledged before is with the others, as far as they were in sync: here all of it."""
    path = fresh_chroot(zookeeper_server)
    cluster = Cluster(tmp_path, path)
    try:
        cluster.zookeeper = f"127.0.0.1:{proxy.port}/{path.partition('/')[2]}"
        cluster.add(1, settings=SETTINGS)
        cluster.zookeeper = path
        cluster.add(2, settings=SETTINGS)
        cluster.add(3, settings=SETTINGS)
        await asyncio.to_thread(cluster.start)
        await asyncio.to_thread(create, cluster, "t", (1, 2, 3), config=STAMPED)
        async with Writer(cluster.brokers[1].port, "t") as old:
            await until(lambda: len(old.acknowledged) > 20, "writes")
            proxy.cut()
            async with Writer(cluster.brokers[2].port, "t") as new:
                await until(lambda: new.acknowledged, "a new leader")
                first = new.acknowledged[0][0]
                assert old.last < first, "two leaders acknowledge"
                pid = cluster.brokers[1].pid
                proxy.mend()
                await eventually(lambda: _in_sync(cluster), lambda found: found == [1, 2, 3])
                assert old.last < first
                assert cluster.brokers[1].pid == pid
                count = len(old.acknowledged) + len(new.acknowledged)
        values = await asyncio.to_thread(consume, cluster, "t", count)
        assert {value for _, value in old.acknowledged} <= set(values)
    finally:
        cluster.close()


async def test_a_leader_that_slept_beyond_its_session_acknowledges_nothing_when_it_wakes(
    zookeeper: str, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path, zookeeper)
    try:
        for number in (1, 2, 3):
            cluster.add(number, settings=SETTINGS)
        await asyncio.to_thread(cluster.start)
        await asyncio.to_thread(create, cluster, "t", (1, 2, 3), config=STAMPED)
        async with Writer(cluster.brokers[1].port, "t") as old, Writer(cluster.brokers[2].port, "t") as new:
            await until(lambda: len(old.acknowledged) > 20, "writes")
            cluster.brokers[1].pause()
            try:
                await until(lambda: new.acknowledged, "a new leader")
            finally:
                cluster.brokers[1].resume()
            woke = time.time()
            await until(lambda: len(old.refused) > 20, "refusals")
            assert old.last < woke
            await eventually(lambda: _in_sync(cluster), lambda found: found == [1, 2, 3])
            assert old.last < woke
    finally:
        cluster.close()


def session(cluster: Cluster, broker: int) -> int:
    """Of the broker's registration."""
    client = KazooClient(cluster.zookeeper)
    client.start(60)
    try:
        return int(client.get(f"/brokers/ids/{broker}")[1].ephemeralOwner)
    finally:
        client.stop()
        client.close()


@slow("three servers and a broker start; the order of servers has unit tests")
def test_a_session_goes_on_with_another_server_when_the_preferred_one_dies(
    ensemble: TestEnsemble, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path / "brokers", f"{ensemble.connect}/kafka")
    near = next(number for number, server in ensemble.servers.items() if server.mode == "follower")
    preferred = {"zookeeper.connect.preferred": ensemble.connect_to(near)}
    try:
        broker = cluster.add(1, settings={"zookeeper.session.timeout.ms": "15000", **preferred}).start()
        create(cluster, "t", (1,))
        before = session(cluster, 1)
        assert ensemble.servers_of(before) == [near]
        ensemble.servers[near].kill()
        wait_until(lambda: ensemble.servers_of(before) not in ([], [near]), "the session is elsewhere")
        produce(cluster, "t", [b"goes on"])
        assert session(cluster, 1) == before
        assert "session lost" not in broker.output
        ensemble.servers[near].start()
        ensemble.wait_serving(near)
        broker.stop()
        broker.start()
        assert ensemble.servers_of(session(cluster, 1)) == [near], "with the next session it is back"
    finally:
        cluster.close()


async def _in_sync(cluster: Cluster) -> list[int]:
    return await asyncio.to_thread(in_sync, cluster, "t")


def read(address: str) -> bytes:
    client = KazooClient(address)
    client.start(60)
    try:
        return bytes(client.get("/side")[0])
    finally:
        client.stop()
        client.close()


def write(address: str, value: bytes) -> None:
    client = KazooClient(address)
    client.start(60)
    try:
        client.ensure_path("/side")
        client.set("/side", value)
    finally:
        client.stop()
        client.close()


def test_two_sites_with_hierarchical_quorums_have_no_writer_when_cut_and_two_when_both_are_changed(
    tmp_path: Path,
) -> None:
    """What `isthmus topology validate` says of them, seen with real servers."""
    size = SERVERS_OF_A_SITE
    west, east = tuple(range(1, size + 1)), tuple(range(size + 1, 2 * size + 1))
    with TestEnsemble(tmp_path, {"west": west, "east": east}, groups=(west, east)) as made:
        write(made.connect_to(*west), b"both")
        assert read(made.connect_to(*east)) == b"both"
        made.cut()
        made.wait_not_serving(*west, *east)  # no writer
        made.heal()
        made.wait_serving(*west, *east)
        made.cut()
        made.wait_not_serving(*west, *east)
        made.restart_alone("west")  # by a person, on one side: goes on with what both had agreed
        assert read(made.connect_to(*west)) == b"both"
        write(made.connect_to(*west), b"west")
        made.wait_not_serving(*east)
        made.restart_alone("east")  # on the other one too: two sides believe
        assert read(made.connect_to(*east)) == b"both"
        write(made.connect_to(*east), b"east")
        assert read(made.connect_to(*west)) == b"west"


@slow("half a minute of ZooKeeper starting")
def test_two_sites_and_a_tie_breaker_survive_the_loss_of_the_site_with_the_leader(tmp_path: Path) -> None:
    with TestEnsemble(tmp_path, {"a": (1,), "b": (2,), "tie": (3,)}) as made:
        write(made.connect, b"all")
        lost = next(number for number, server in made.servers.items() if server.mode == "leader")
        left = [number for number in made.servers if number != lost]
        made.servers[lost].kill()
        made.wait_serving(*left)
        write(made.connect_to(*left), b"two")
        made.servers[left[0]].kill()
        made.wait_not_serving(left[1])
        made.servers[lost].start()
        made.wait_serving(lost, left[1])
        assert read(made.connect_to(lost)) == b"two"


def test_a_data_directory_of_another_server_is_refused(tmp_path: Path) -> None:
    (tmp_path / "myid").write_text("2\n")
    ensemble = Ensemble.parse(1, ["1=127.0.0.1:1:2", "2=127.0.0.1:3:4"])
    with pytest.raises(EmbeddedZooKeeperError, match="belongs to server 2 of its ensemble, not to 1"):
        EmbeddedZooKeeper(tmp_path, ensemble=ensemble).start()
