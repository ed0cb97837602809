"""Reading a partition by hand, batch by batch, at any Kafka cluster: what commands and openings do, where the
engine does not run.

Owns waiting for an answer with something in it. Below a log's end there are batches, so an empty answer means
a broker that throttles, or whose leadership or high watermark is new; it is no end.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol.client import ClusterClient, Isolation
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from transfer.endpoint import AbortedTransaction, Chunk
from transfer.kafka.positions import last_batch

MAX_BYTES: Final = 8 << 20
_EMPTY_ANSWERS: Final = 20
"""So often in a row, each after half a second, it is something else."""


class Batches(NamedTuple):
    """Whole batches from the one that holds an offset on."""

    batches: memoryview
    next_offset: int
    last_epoch: int
    aborted: tuple[AbortedTransaction, ...]


async def whole_batches(
    client: ClusterClient,
    tp: TopicPartition,
    offset: int,
    *,
    isolation: int = Isolation.READ_UNCOMMITTED,
    max_bytes: int = MAX_BYTES,
) -> Batches:
    """At least one, for an offset below the end. Raises ProtocolError, KafkaError when it stays empty."""
    end = -1
    for _ in range(_EMPTY_ANSWERS):
        fetched = await client.fetch(tp, offset, max_bytes=max_bytes, isolation=isolation)
        stop, after, epoch = last_batch(fetched.records)
        if stop:
            aborted = tuple(AbortedTransaction(*entry) for entry in fetched.aborted)
            return Batches(fetched.records[:stop], after, epoch, aborted)
        end = fetched.high_watermark
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{tp}: no batches at offset {offset}, its end is {end}")


async def committed_chunk(
    client: ClusterClient, tp: TopicPartition, position: int, *, max_bytes: int = MAX_BYTES
) -> Chunk:
    """The same of what is committed, as the engine's sources give it. Raises ProtocolError."""
    found = await whole_batches(client, tp, position, isolation=Isolation.READ_COMMITTED, max_bytes=max_bytes)
    return Chunk(
        tp,
        found.batches,
        position,
        found.next_offset,
        last_epoch=found.last_epoch,
        aborted=found.aborted,
    )
