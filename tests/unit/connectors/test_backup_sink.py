"""What a backup lists is in the store, beside unreadable batches and a store that does not answer."""

import asyncio

import pytest

from connectors.backup_sink import BackupSink
from connectors.errors import ObjectStoreError
from protocol.types import Buffer
from tests.unit.connectors.logs import TP, numbered
from transfer.endpoint import Chunk, RefusedError
from transfer.offset_map import Run


class Store:
    """An object store that takes everything."""

    async def put(self, key: str, body: Buffer) -> None: ...


class Hanging(Store):
    """It takes an object and does not answer."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def location(self, key: str = "") -> str:
        return f"s3://bucket/{key}"

    async def put(self, key: str, body: Buffer) -> None:
        if not self.asked.is_set():
            self.asked.set()
            await asyncio.Event().wait()


async def test_an_object_whose_writing_was_given_up_is_not_listed() -> None:
    store = Hanging()
    sink = BackupSink(
        store,  # type: ignore[arg-type]
        "b1",
        "segment",
        object_bytes=1,
        part_bytes=1 << 20,
        avro_codec="null",
    )
    sink.begin(TP, 100)
    writing = asyncio.ensure_future(sink.write(TP, Chunk(TP, memoryview(numbered(10)), 0, 10)))
    async with asyncio.timeout(20):
        await store.asked.wait()
    writing.cancel()
    await asyncio.wait({writing})
    with pytest.raises(ObjectStoreError, match="orders-3 was not taken in time"):
        await sink.finish(TP)


async def test_batches_before_an_unreadable_one_are_booked() -> None:
    sink = BackupSink(
        Store(),  # type: ignore[arg-type]
        "b1",
        "segment",
        object_bytes=1 << 20,
        part_bytes=1 << 20,
        avro_codec="null",
    )
    old = bytearray(numbered(10, 10))
    old[16] = 1  # a format that was given up with Kafka 4
    sink.begin(TP, 100)
    with pytest.raises(RefusedError, match="source offset 10:") as caught:
        await sink.write(TP, Chunk(TP, memoryview(numbered(10) + old), 0, 20))
    copied = caught.value.copied
    assert copied is not None
    assert (copied.runs, copied.next_source_offset, copied.records) == ((Run(0, 0, 10),), 10, 10)
    (entry,) = (await sink.finish(TP)).entries
    assert (entry.first_offset, entry.last_offset, entry.records) == (0, 9, 10)
