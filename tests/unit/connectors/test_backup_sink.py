"""A batch that cannot be read ends its partition; what stands before it is in the backup and booked."""

import pytest

from connectors.backup_sink import BackupSink
from protocol.types import Buffer
from tests.unit.connectors.logs import TP, numbered
from transfer.endpoint import Chunk, RefusedError
from transfer.offset_map import Run


class Store:
    """An object store that takes everything."""

    async def put(self, key: str, body: Buffer) -> None: ...


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
