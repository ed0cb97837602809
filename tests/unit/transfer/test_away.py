"""A cluster that is away is said once, once more for another kind of trouble, and when it is over."""

import asyncio
import logging

import pytest

from protocol.client import AuthenticationError, ConnectError, Metadata
from protocol.client.log_calls import ProducerId
from protocol.types import TopicPartition
from transfer.kafka.sink import KafkaSink
from transfer.kafka.source import KafkaSource

TP = TopicPartition("orders", 0)


class Client:
    """Fails as it is told to, with other words each time."""

    def __init__(self):
        self.kind, self.asked = ConnectError, 0

    async def metadata(self, topics):
        self.asked += 1
        if self.kind is not None:
            raise self.kind(f"attempt {self.asked}")
        return Metadata("id", -1, {}, {})

    async def init_producer_id(self):
        return ProducerId(5, 0)

    async def asked_again(self, times=3):
        until = self.asked + times
        async with asyncio.timeout(20):
            while self.asked < until:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(("kind", "side"), [(KafkaSource, "source"), (KafkaSink, "target")])
async def test_an_outage_is_said_once_for_each_kind_and_when_it_is_over(kind, side, caplog):
    caplog.set_level(logging.INFO, "isthmus.transfer")
    client = Client()
    endpoint = kind(client)
    await (endpoint.open(TP, 0) if kind is KafkaSource else endpoint.open(TP))
    try:
        await client.asked_again()
        client.kind = AuthenticationError
        await client.asked_again()
        client.kind = None
        await client.asked_again(1)
        await client.asked_again(1)
    finally:
        await endpoint.aclose()
    said = [record.message for record in caplog.records if "metadata" in record.message]
    assert len(said) == 3, said
    assert said[0] == f"{side} metadata: attempt 1"
    assert said[2] == f"{side} metadata: it answers again"
