"""Fetch sessions (KIP-227): random dialogues give the same answers from Apache Kafka and from us.

A dialogue is one reader's session on either broker: full and incremental fetches, partitions added, moved and
forgotten, records that arrive, a log start that moves, epochs and sessions that are wrong, partitions and
topics that are not there, a partition named twice. Session and topic ids are each broker's own; everything
else of the answers is compared. And Kafka's own consumer, which uses sessions, reads all there is.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from protocol.client import Connection
from protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import decode_batches
from protocol.types import ZERO_UUID
from tests.support.apache_kafka import kafka_tool
from tests.support.groups_beside_kafka import SETTINGS, both_brokers
from tests.support.served import batch
from tests.support.zookeeper import fresh_chroot

pytestmark = [pytest.mark.interop, pytest.mark.cluster, pytest.mark.slow]

TOPICS = {"a": 3, "b": 2}
STEPS = 60
NOWHERE = "nowhere"


@pytest.fixture(scope="module")
def both(
    zookeeper_server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    with both_brokers(tmp_path_factory.mktemp("broker"), fresh_chroot(zookeeper_server), SETTINGS) as pair:
        yield pair


class Reader:
    """One broker's side of a dialogue: the session it gave, and the ids of its topics."""

    def __init__(self, connection: Connection, ids: dict[str, bytes], prefix: str) -> None:
        self.connection = connection
        self.ids = ids
        self.names = {topic_id: name for name, topic_id in ids.items()}
        self.prefix = prefix
        self.session_id = 0

    @classmethod
    async def open(cls, bootstrap: str, prefix: str) -> Reader:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        new = [NewTopic(prefix + name, count, 1) for name, count in TOPICS.items()]
        for future in admin.create_topics(new).values():
            future.result(30)
        host, _, port = bootstrap.partition(":")
        connection = await Connection.open(host, int(port))
        topics = [MetadataRequestTopic(name=prefix + name) for name in TOPICS]
        deadline = time.monotonic() + 60
        while True:
            known = (await connection.send(MetadataRequest(topics=topics), 12)).topics
            if all(topic.error_code == 0 for topic in known):
                break
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        ids = {str(topic.name).removeprefix(prefix): topic.topic_id for topic in known}
        reader = cls(connection, ids, prefix)
        await reader.until_led()
        return reader

    async def until_led(self) -> None:
        """Kafka confirms a topic a moment before it leads its partitions."""
        partitions = {name: [FetchPartition(partition=n) for n in range(TOPICS[name])] for name in TOPICS}
        deadline = time.monotonic() + 60
        for version in (12, 13):
            wanted = [self.topic(FetchTopic, name, version, parts) for name, parts in partitions.items()]
            while True:
                answer = await self.connection.send(FetchRequest(session_epoch=-1, topics=wanted), version)
                if all(part.error_code == 0 for topic in answer.responses for part in topic.partitions):
                    break
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)

    def topic(self, kind: type[Any], name: str, version: int, partitions: list[Any]) -> Any:
        if version >= 13:
            return kind(topic_id=self.ids.get(name, b"\7" * 16), partitions=partitions)
        return kind(topic=self.prefix + name, partitions=partitions)

    async def fetch(self, step: dict[str, Any]) -> Any:
        version = step["version"]
        request = FetchRequest(
            session_id=self.session_id if step["session"] is None else step["session"],
            session_epoch=step["epoch"],
            max_wait_ms=0,
            min_bytes=1,
            isolation_level=step["isolation"],
            max_bytes=step["max_bytes"],
            topics=[
                self.topic(FetchTopic, name, version, [
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=step["size"])
                ])
                for name, index, offset in step["wanted"]
            ],
            forgotten_topics_data=[
                self.topic(ForgottenTopic, name, version, [index]) for name, index in step["forget"]
            ],
        )  # fmt: skip
        answer = await self.connection.send(request, version)
        if step["session"] is None:
            self.session_id = answer.session_id
        return self.seen(answer)

    def seen(self, answer: Any) -> Any:
        found = []
        for topic in answer.responses:
            name = topic.topic.removeprefix(self.prefix)
            if topic.topic_id != ZERO_UUID:
                name = self.names.get(topic.topic_id, NOWHERE)
            found += [
                (
                    name, part.partition_index, part.error_code, part.high_watermark, part.last_stable_offset,
                    part.log_start_offset, part.aborted_transactions, part.preferred_read_replica,
                    [record.offset for record in decode_batches(part.records or b"")],
                )
                for part in topic.partitions
            ]  # fmt: skip
        return answer.error_code, answer.session_id != 0, found

    async def produce(self, name: str, index: int, count: int) -> None:
        data = [PartitionProduceData(index=index, records=batch(*[b"x" * 100] * count))]
        topic = TopicProduceData(name=self.prefix + name, partition_data=data)
        answer = await self.connection.send(
            ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), 11
        )
        assert answer.responses[0].partition_responses[0].error_code == 0

    async def delete_before(self, name: str, index: int, offset: int) -> None:
        topic = DeleteRecordsTopic(
            name=self.prefix + name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)]
        )
        await self.connection.send(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)


class Dialogue:
    """Draws what happens next. `ends` are log ends, `epoch` what the session's next request should say."""

    def __init__(self, seed: int, version: int) -> None:
        self.draw = random.Random(seed)
        self.version = version
        self.partitions = [(name, index) for name, count in TOPICS.items() for index in range(count)]
        self.ends = dict.fromkeys(self.partitions, 0)
        self.epoch = 0

    def wanted(self) -> list[tuple[str, int, int]]:
        found = [
            (*each, self.draw.choice([0, self.ends[each], self.ends[each] // 2, self.ends[each] + 3]))
            for each in self.draw.sample(self.partitions, self.draw.randint(0, 4))
        ]
        if self.draw.random() < 0.15:
            found.append((NOWHERE, 0, 0))
        if self.draw.random() < 0.15:
            found.append(("a", 17, 0))
        if found and self.draw.random() < 0.15:  # twice: the last one counts
            name, index, _ = self.draw.choice(found)
            found.append((name, index, self.ends.get((name, index), 0)))
        return found

    def step(self) -> dict[str, Any]:
        """The next fetch. `session` None is the session the broker gave."""
        kind = self.draw.choice(["full", *["next"] * 9, "wrong epoch", "wrong session", "none"])
        made: dict[str, Any] = {
            "version": self.version, "session": None, "epoch": self.epoch, "wanted": self.wanted(),
            "forget": [], "isolation": self.draw.choice([0, 0, 1]), "size": self.draw.choice([200, 100_000]),
            # Nothing in between: Kafka sends and counts parts of batches at the end, we send whole ones.
            "max_bytes": self.draw.choice([1, 1 << 20]),
        }  # fmt: skip
        if kind == "full" or self.epoch <= 0:
            made["epoch"] = 0
        elif kind == "wrong epoch":
            made["epoch"] = self.epoch + 5
        elif kind == "wrong session":
            made["session"] = 1  # drawn from two thousand million: nobody has it
        elif kind == "none":
            made["session"], made["epoch"] = 0, -1
        else:
            made["forget"] = self.draw.sample(self.partitions, self.draw.choice([0, 0, 1, 3]))
        return made

    def after(self, step: dict[str, Any], answer: Any) -> None:
        error, has_session, _ = answer
        if step["session"] is not None:
            return
        if error or not has_session:
            self.epoch = 0
        else:
            self.epoch = step["epoch"] + 1


@pytest.fixture
async def readers(both: tuple[str, str], request: pytest.FixtureRequest) -> AsyncIterator[list[Reader]]:
    prefix = f"{request.node.callspec.id}-"
    found = [await Reader.open(bootstrap, prefix) for bootstrap in both]
    yield found
    for reader in found:
        await reader.connection.close()


@pytest.mark.parametrize("version", [7, 11, 12, 13, 17])
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_dialogue_goes_as_with_apache_kafka(readers: list[Reader], seed: int, version: int) -> None:
    kafka, ours = readers
    dialogue = Dialogue(seed * 100 + version, version)
    incremental = 0
    for number in range(STEPS):
        if dialogue.draw.random() < 0.3:
            name, index = dialogue.draw.choice(dialogue.partitions)
            count = dialogue.draw.randint(1, 4)
            for reader in readers:
                await reader.produce(name, index, count)
            dialogue.ends[name, index] += count
        if dialogue.draw.random() < 0.1:
            name, index = dialogue.draw.choice(dialogue.partitions)
            for reader in readers:
                await reader.delete_before(name, index, dialogue.ends[name, index] // 2)
        step = dialogue.step()
        theirs, mine = await kafka.fetch(step), await ours.fetch(step)
        assert mine == theirs, f"step {number}: {step}"
        incremental += step["epoch"] > 0 and not mine[0]
        dialogue.after(step, mine)
    assert incremental > STEPS / 10


async def test_the_java_consumer_reads_by_sessions(both: tuple[str, str]) -> None:
    _, bootstrap = both
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("many", 40, 1)]).values():
        future.result(30)
    tools = "org.apache.kafka.tools."
    kafka_tool(
        tools + "ProducerPerformance", "--topic", "many", "--num-records", "20000", "--record-size", "200",
        "--throughput", "-1", "--bootstrap-server", bootstrap,
    )  # fmt: skip
    out = kafka_tool(
        tools + "ConsumerPerformance", "--bootstrap-server", bootstrap, "--topic", "many",
        "--num-records", "20000", "--hide-header", "--print-metrics",
    )  # fmt: skip
    assert "20000" in out.splitlines()[0].split(", ")[4]
    throttled = [line for line in out.splitlines() if "fetch-throttle-time-max" in line]
    assert throttled
