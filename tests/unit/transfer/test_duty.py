"""A task of an endpoint that dies of an unforeseen fault ends the transfer aloud."""

import asyncio

import pytest

from protocol.types import TopicPartition
from transfer.endpoint import BrokenEndpointError, Chunk
from transfer.kafka.duty import on_duty
from transfer.kafka.sink import KafkaSink
from transfer.kafka.source import KafkaSource

TP = TopicPartition("t", 0)


class FaultyClient:
    """Every question ends in something that is no ProtocolError."""

    async def metadata(self, topics: object, **_: object) -> object:
        raise KeyError("nobody thought of this")

    async def init_producer_id(self) -> object:
        raise KeyError("nor of this")


async def test_a_fault_is_reported_and_a_cancellation_is_not() -> None:
    heard: list[BrokenEndpointError] = []

    async def faulty() -> None:
        raise ValueError("odd")

    task = on_duty(faulty(), heard.append)
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert [repr(error.__cause__) for error in heard] == ["ValueError('odd')"]

    task = on_duty(asyncio.sleep(60), heard.append)
    task.cancel()
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert len(heard) == 1


async def test_a_source_whose_keeper_died_does_not_wait_for_ever() -> None:
    source = KafkaSource(FaultyClient())  # type: ignore[arg-type]
    await source.open(TP, 0)
    with pytest.raises(BrokenEndpointError, match="nobody thought of this"):
        await asyncio.wait_for(source.read(), 5)
    await source.aclose()


async def test_a_sink_whose_keeper_died_fails_its_writes() -> None:
    sink = KafkaSink(FaultyClient())  # type: ignore[arg-type]
    from protocol.records import Record, build_batch

    batch = memoryview(build_batch([Record(0, 0, None, b"v", [])]))
    chunk = Chunk(TP, batch, 0, 1)
    for _ in range(2):
        with pytest.raises(BrokenEndpointError):
            await asyncio.wait_for(sink.write(TP, chunk), 5)
    await sink.aclose()
