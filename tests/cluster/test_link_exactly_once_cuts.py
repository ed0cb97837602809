"""Exactly once while the path to the target is cut, both ways and one way, and the source has transactions.

Two target brokers, each behind a proxy that everybody who knows it goes through. At the source some
transactions are aborted, and one stays open over each cut. The judge is librdkafka on both sides.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator

import confluent_kafka
import pytest

from protocol.client import LATEST, ClusterClient, Isolation
from protocol.types import TopicPartition
from replicator.progress import read_ledgers
from tests.cluster.links import LinkProcess, Pair, committed, create, eventually, fresh
from tests.support.broker import BrokerProcess, Cluster
from tests.support.proxy import LossyProxy
from tests.support.slow import slow
from tests.support.zookeeper import fresh_chroot
from topology.runtime import free_port

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

PARTITIONS = 4
ROUNDS = int(os.environ.get("ISTHMUS_CUTS", "8"))
LONG_S = 240.0


@contextlib.asynccontextmanager
async def _behind_proxies(cluster: Cluster) -> AsyncIterator[list[LossyProxy]]:
    """Two brokers that tell their proxies' addresses."""
    async with contextlib.AsyncExitStack() as stack:
        proxies = []
        for number in (1, 2):
            port = free_port()
            proxy = await stack.enter_async_context(LossyProxy("127.0.0.1", port))
            broker = cluster.add(
                number, settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
            )
            broker.port = port
            broker.launch()
            proxies.append(proxy)
        try:
            for broker in cluster.brokers.values():
                await asyncio.to_thread(broker.wait_ready)
            yield proxies
        finally:
            cluster.close()


class Source:
    """Writes transactions, one after the other, and one beside them that ends when told."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._random = random.Random(seed)
        self._written = 0
        self.done = False

    def _producer(self, name: str) -> confluent_kafka.Producer:
        made = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": f"{name}-{self._topic}",
                "linger.ms": 2,
            }
        )
        made.init_transactions(60)
        return made

    def _write(self, producer: confluent_kafka.Producer, tag: str) -> None:
        for partition in range(PARTITIONS):
            for _ in range(self._random.randint(1, 20)):
                self._written += 1
                value = f"{tag}-{self._written}".encode()
                producer.produce(self._topic, key=b"k", value=value, partition=partition)
        producer.flush(60)

    def run(self) -> None:
        """Until `done`; a third of them is aborted."""
        producer = self._producer("main")
        while not self.done:
            producer.begin_transaction()
            commit = self._random.random() > 0.33
            self._write(producer, "kept" if commit else "aborted")
            if commit:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)

    def begin(self, name: str) -> confluent_kafka.Producer:
        """Stays open."""
        producer = self._producer(name)
        producer.begin_transaction()
        self._write(producer, name)
        return producer


async def _cut(proxies: list[LossyProxy], kind: str, seconds: float) -> None:
    for proxy in proxies:
        if kind in ("both", "answers"):
            proxy.hold()
        if kind in ("both", "requests"):
            proxy.hold_requests()
        if kind == "reset":
            proxy.cut()
    await asyncio.sleep(seconds)
    for proxy in proxies:
        proxy.mend()
        proxy.let_go()


async def _copied(east: ClusterClient, west: ClusterClient, link: str, topic: str) -> None:
    """Everything readable at the source now."""
    tps = [TopicPartition(topic, n) for n in range(PARTITIONS)]
    ends = await east.list_offsets(dict.fromkeys(tps, LATEST), isolation=Isolation.READ_COMMITTED)

    async def there() -> bool:
        ledgers = await read_ledgers(west, link)
        return all(tp in ledgers and ledgers[tp].next_source_offset >= end.offset for tp, end in ends.items())

    await eventually(there, "all is copied", LONG_S)


@slow("minutes of cuts")
async def test_cuts_of_every_kind_lose_nothing_and_write_nothing_twice(zookeeper_server, tmp_path):
    east_broker = BrokerProcess(tmp_path / "east", fresh_chroot(zookeeper_server), 1)
    east_broker.start()
    cluster = Cluster(tmp_path / "west", fresh_chroot(zookeeper_server))
    moments = random.Random(11)
    topic = fresh("cuts")
    try:
        async with _behind_proxies(cluster) as proxies:
            pair = Pair(
                "isthmus", east_broker.bootstrap, ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
            )
            link = pair.link(topic, exactly_once=True, number=random.randrange(10**6, 10**7))
            process = LinkProcess(link, str(tmp_path / "link.log"))
            source = Source(pair.east, topic, 12)
            async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
                await create(east, topic, PARTITIONS)
                writing = asyncio.create_task(asyncio.to_thread(source.run))
                try:
                    await process.start()
                    await _copied(east, west, link.name, topic)
                    for number in range(ROUNDS):
                        kind = ("both", "answers", "requests", "reset")[number % 4]
                        which = proxies if number % 8 < 4 else [moments.choice(proxies)]
                        open_one = await asyncio.to_thread(source.begin, f"open{number}")
                        await asyncio.sleep(moments.uniform(0.0, 1.0))
                        await _cut(which, kind, moments.uniform(2.0, 6.0))
                        end = open_one.abort_transaction if number % 3 == 2 else open_one.commit_transaction
                        await asyncio.to_thread(end, 60)
                        await _copied(east, west, link.name, topic)
                    source.done = True
                    await writing
                    await _copied(east, west, link.name, topic)
                    assert process.lives
                    assert await process.stop() == 0
                finally:
                    source.done = True
                    await asyncio.gather(writing, return_exceptions=True)
                    await process.kill()
                mirror = f"{link.source.alias}.{topic}"
                for partition in range(PARTITIONS):
                    here = await committed(pair.east, topic, partition)
                    assert not [value for _, _, value, _ in here if value.startswith(b"aborted")]
                    assert len(here) > 100
                    assert await committed(pair.west, mirror, partition) == here
                ledgers = await read_ledgers(west, link.name)
                assert not any(ledger.differences for ledger in ledgers.values())
    finally:
        east_broker.kill()
