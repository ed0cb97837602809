"""A batch that the source's disk has damaged: it is never at the target, however large, and the copy says
where it is and goes no further by itself."""

import os
import re

import pytest

from protocol.client import ClusterClient
from protocol.records import Record
from tests.cluster.links import Pair, content, copied_to, create, eventually, fresh, produce, running
from tests.support.apache_kafka import apache_kafka
from tests.support.broker import BrokerProcess
from tests.support.zookeeper import fresh_chroot

pytestmark = pytest.mark.cluster

T0 = 1_700_000_000_000


@pytest.fixture(scope="module", params=["isthmus", pytest.param("apache", marks=pytest.mark.interop)])
def target_bootstrap(request, zookeeper_server, tmp_path_factory):
    if request.param == "apache":
        with apache_kafka("damage-target") as bootstrap:
            yield bootstrap
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("west"), fresh_chroot(zookeeper_server), 1)
    broker.start()
    yield broker.bootstrap
    broker.kill()


@pytest.fixture
def source(zookeeper_server, tmp_path):
    broker = BrokerProcess(tmp_path / "east", fresh_chroot(zookeeper_server), 1)
    broker.start()
    yield broker
    broker.kill()


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at least once", "exactly once"])
@pytest.mark.parametrize("size", [100, 30_000], ids=["small", "large"])
async def test_it_stops_its_partition_alone_and_nothing_behind_it_is_copied(
    source, target_bootstrap, size, exactly_once
):
    topic, mark = fresh("damaged"), os.urandom(32)
    async with ClusterClient(source.bootstrap) as east:
        await create(east, topic, 2)
        for part in range(2):
            for number in range(5):
                value = (mark if (part, number) == (0, 3) else b"v") + bytes(size) + b"%d" % number
                await produce(east, topic, [Record(0, T0 + number, b"k", value)], part)
    source.stop()
    (log,) = (source.directory / "data").rglob(f"{topic}-0/*.log")
    data = bytearray(log.read_bytes())
    (at,) = (found.start() for found in re.finditer(re.escape(mark), data))
    data[at + 40] ^= 1
    log.write_bytes(data)
    source.start()
    link = Pair("isthmus", source.bootstrap, target_bootstrap).link(
        topic, exactly_once=exactly_once, retry_refused_s=3600
    )
    target = f"{link.source.alias}.{topic}"
    async with ClusterClient(target_bootstrap) as west, running(link) as process:

        async def refused():
            return process.partition(topic).get("state") == "refused"

        await eventually(refused, "the partition is refused")
        reason = process.partition(topic)["reason"]
        assert "damaged at the source" in reason
        assert "offset 3" in reason
        await copied_to(west, link, topic, 5, 1)
        await copied_to(west, link, topic, 3, 0)
        assert len(await content(west, target, 1)) == 5
        assert [value[-1:] for _, _, value, _ in await content(west, target, 0)] == [b"0", b"1", b"2"]
        await process.stop()
