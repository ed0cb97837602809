"""A source that is told to look again: what brokers before Fetch v13 do not say by themselves."""

import asyncio
from types import SimpleNamespace

from protocol.client import PartitionMetadata, TopicMetadata
from protocol.errors import ErrorCode
from protocol.types import TopicPartition
from transfer.endpoint import FaultKind
from transfer.kafka.source import KafkaSource

TP = TopicPartition("orders", 0)
OLD, NEW = bytes(15) + b"\1", bytes(15) + b"\2"


class Client:
    """A cluster whose brokers take connections for ever; `topic_id` is what metadata tells."""

    topic_id = OLD

    async def metadata(self, _):
        rows = {0: PartitionMetadata(1, 0, (1,), (1,))}
        topic = TopicMetadata("orders", self.topic_id, ErrorCode.NONE, False, rows)
        return SimpleNamespace(topics={"orders": topic})

    async def connection_to(self, node, lane):
        await asyncio.Event().wait()


async def test_a_topic_made_again_is_told_when_somebody_has_seen_it():
    client = Client()
    source = KafkaSource(client)
    try:
        async with asyncio.timeout(30):
            source.expect(TP, OLD)
            await source.open(TP, 5)
            while source.reading(TP).leader < 0:
                await asyncio.sleep(0.01)
            source.look_again(TP)
            while source.reading(TP).leader < 0:  # it was a mistake
                await asyncio.sleep(0.01)
            client.topic_id = NEW
            source.look_again(TP)
            (fault,) = await source.read()
    finally:
        await source.aclose()
    assert (fault.tp, fault.kind, fault.position) == (TP, FaultKind.RECREATED, 5)
