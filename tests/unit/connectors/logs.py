"""Chunks as a cluster hands them out, for tests without a cluster."""

from collections.abc import Sequence

from protocol.records import Codec, Record, assign_offsets, build_batch, read_header
from protocol.types import TopicPartition
from transfer.endpoint import AbortedTransaction, Chunk

TP = TopicPartition("orders", 3)
T0 = 1_700_000_000_000

RECORDS = [
    Record(0, T0, b"key", b"value", [("a", b"1"), ("a", None), ("b", b"")]),
    Record(1, T0 + 5, None, b"no key"),
    Record(2, T0 + 3, b"", b""),
    Record(3, T0 + 7, b"tombstone", None),
    Record(4, -1, b"no time", b"x" * 300),
]


def chunk(
    batches: Sequence[bytes], first_offset: int | None = None, aborted: Sequence[AbortedTransaction] = ()
) -> Chunk:
    joined = memoryview(b"".join(batches))
    headers = [read_header(batch) for batch in batches]
    first = headers[0].base_offset if first_offset is None else first_offset
    return Chunk(TP, joined, first, headers[-1].next_offset, aborted=tuple(aborted))


def numbered(count: int, start: int = 0, *, codec: Codec = Codec.NONE, size: int = 20) -> bytes:
    """A batch of `count` records at offsets from `start` on."""
    records = [Record(n, T0 + n, b"k%d" % n, (b"%d-" % n) * (size // 4)) for n in range(start, start + count)]
    return build_batch(records, codec=codec, base_offset=start)


def placed(batch: bytes, base_offset: int, leader_epoch: int = 5) -> bytes:
    """The batch as a broker stores it at `base_offset`."""
    data = bytearray(batch)
    assign_offsets(data, 0, base_offset, leader_epoch)
    return bytes(data)
