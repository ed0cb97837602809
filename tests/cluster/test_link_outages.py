"""Links while brokers of either side are killed, stopped or paused and come back on the same data."""

import asyncio

import pytest

from protocol.client import ClusterClient
from protocol.errors import ProtocolError
from tests.cluster.links import Pair, content, copied_to, create, fresh, produce, running, some
from tests.support.broker import BrokerProcess
from tests.support.zookeeper import fresh_chroot

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def brokers(zookeeper_server, tmp_path_factory):
    made = [
        BrokerProcess(tmp_path_factory.mktemp(name), fresh_chroot(zookeeper_server), 1)
        for name in ("east", "west")
    ]
    try:
        for broker in made:
            broker.start()
        yield made
    finally:
        for broker in made:
            broker.kill()


async def _load(client, topic, written, done):
    """Writes until `done`; a batch whose acknowledgement is lost is not counted and may be there."""
    while not done.is_set():
        try:
            await produce(client, topic, some(20, f"n{written['batches']}"))
        except ProtocolError:
            await asyncio.sleep(0.2)
            continue
        written["batches"] += 1
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("side", "trouble"),
    [("east", "kill"), ("west", "kill"), ("west", "stop"), ("east", "pause"), ("west", "pause")],
)
async def test_a_broker_that_goes_and_comes_back_costs_nothing(brokers, side, trouble):
    pair = Pair("isthmus", brokers[0].bootstrap, brokers[1].bootstrap)
    broker = brokers[side == "west"]
    topic = fresh(f"outage-{side}-{trouble}")
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic)
        link = pair.link(topic)
        written, done = {"batches": 0}, asyncio.Event()
        loading = asyncio.create_task(_load(east, topic, written, done))
        try:
            async with running(link) as running_link:
                await copied_to(west, link, topic, 100)
                await asyncio.to_thread(getattr(broker, trouble))
                await asyncio.sleep(3)
                if trouble == "pause":
                    broker.resume()
                else:
                    broker.launch()  # from the main thread: a broker ends with the thread that started it
                    await asyncio.to_thread(broker.wait_ready)
                after = written["batches"]
                while written["batches"] < after + 10:
                    await asyncio.sleep(0.1)
                done.set()
                await loading
                source = await content(east, topic)
                await copied_to(west, link, topic, len(source))
                assert await running_link.stop() == 0
        finally:
            done.set()
            await asyncio.gather(loading, return_exceptions=True)
        assert await content(west, f"{link.source.alias}.{topic}") == source
