"""Links over many partitions with little traffic read within fetch sessions (KIP-227), and miss nothing."""

import asyncio
import random

from protocol.client.fetch_session import FetchSession
from protocol.errors import ErrorCode
from protocol.messages.fetch_request import FetchRequest
from protocol.types import TopicPartition
from replicator.progress import read_ledgers
from tests.cluster.links import (
    BOTH_SOURCES,
    content,
    create,
    eventually,
    fresh,
    produce,
    running,
    some,
)

pytestmark = BOTH_SOURCES

PARTITIONS = 80


async def test_only_what_moves_is_named_and_all_of_it_arrives(pair, clients, monkeypatch):
    east, west = clients
    named: list[tuple[int, int]] = []
    ask = FetchSession.next

    def watched(self):
        topics, forgotten = ask(self)
        named.append((self.epoch, sum(len(topic.partitions) for topic in topics)))
        return topics, forgotten

    monkeypatch.setattr(FetchSession, "next", watched)
    chance, topic = random.Random(5), fresh("many")
    await create(east, topic, PARTITIONS)
    link = pair.link(topic)
    sent: dict[int, int] = {}
    async with running(link):
        for number in range(150):
            index = chance.randrange(PARTITIONS)
            count = chance.randint(1, 4)
            await produce(east, topic, some(count, f"{number}"), index)
            sent[index] = sent.get(index, 0) + count
            await asyncio.sleep(chance.random() / 30)

        async def all_there() -> bool:
            ledgers = await read_ledgers(west, link.name)
            done = {tp.partition: ledger.records for tp, ledger in ledgers.items() if tp.topic == topic}
            return {index: count for index, count in done.items() if count} == sent

        await eventually(all_there, "every record is copied")
    mirror = f"{link.source.alias}.{topic}"
    for index in sent:
        assert await content(west, mirror, index) == await content(east, topic, index)
    assert (await read_ledgers(west, link.name))[TopicPartition(topic, 0)].differences == 0
    later = [count for epoch, count in named if epoch > 0]
    assert len(later) > 50
    assert sum(later) < 5 * len(later), named


async def test_partitions_that_come_are_told_to_the_broker(pair, clients):
    east, west = clients
    topic = fresh("changing")
    await create(east, topic, PARTITIONS)
    link = pair.link(topic)
    async with running(link) as run:
        await produce(east, topic, some(3, "first"), 1)
        await eventually(lambda: _has(west, link, topic, 1, 3), "the first records")
        await east.create_partitions({topic: PARTITIONS + 4})
        await produce(east, topic, some(2, "grown"), PARTITIONS + 3)
        await eventually(lambda: _has(west, link, topic, PARTITIONS + 3, 2), "those of a new partition")
        await produce(east, topic, some(2, "more"), 1)
        await eventually(lambda: _has(west, link, topic, 1, 5), "those behind")
        assert run.metric("isthmus_link_disorders_total") == 0
    mirror = f"{link.source.alias}.{topic}"
    for index in (1, PARTITIONS + 3):
        assert await content(west, mirror, index) == await content(east, topic, index)


async def _has(client, link, topic, partition, records):
    ledger = (await read_ledgers(client, link.name)).get(TopicPartition(topic, partition))
    return ledger is not None and ledger.records == records


async def test_a_link_that_stops_gives_its_slots_back(pair, clients, monkeypatch):
    east, _ = clients
    granted: set[int] = set()
    take = FetchSession.answered

    def noted(self, session_id):
        granted.add(session_id)
        take(self, session_id)

    monkeypatch.setattr(FetchSession, "answered", noted)
    topic = fresh("leaving")
    await create(east, topic, PARTITIONS)
    link = pair.link(topic)
    async with running(link) as run:
        await eventually(lambda: _are(granted, 2), "a session for each connection")
        await run.stop()
    assert 0 not in granted
    connection = await east.connection_to(1)
    for session_id in granted:
        answer = await connection.send(FetchRequest(session_id=session_id, session_epoch=5), 17)
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def _are(found, count):
    return len(found) == count
