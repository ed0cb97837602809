"""Committed records of a partition, as they are compared with their copies.

Owns reading them once, up to what is the end now. Knows nothing about what they mean.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from protocol.client import EARLIEST, LATEST, ClusterClient, Isolation
from protocol.errors import ErrorCode, KafkaError
from protocol.records.header import iter_headers
from protocol.records.reading import read_records
from protocol.types import TopicPartition
from replicator.mirrormaker.history import Copy
from replicator.whole_batches import committed_chunk
from transfer.endpoint import Chunk
from transfer.rewrite import AbortedFilter


async def committed(
    client: ClusterClient, tp: TopicPartition, position: int
) -> AsyncIterator[tuple[int, list[Copy]]]:
    """Committed records from `position` to what is the end now, as (next position, records).

    A partition that does not exist has none. Raises ProtocolError when nothing comes although there is more.
    """
    try:
        first = (await client.list_offsets({tp: EARLIEST}))[tp].offset
        last = await client.list_offsets({tp: LATEST}, isolation=Isolation.READ_COMMITTED)
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return
        raise
    position = max(position, first)
    while position < last[tp].offset:
        chunk = await committed_chunk(client, tp, position)
        position = chunk.next_offset
        yield position, _rows(chunk)


def _rows(chunk: Chunk) -> list[Copy]:
    filtered = AbortedFilter(chunk)
    return [
        Copy(record.offset, record.timestamp, record.key, record.value, record.headers)
        for pos, header in iter_headers(chunk.batches)
        if not filtered.skips(pos, header)
        for record in read_records(chunk.batches, pos, header)
        if record.offset >= chunk.first_offset
    ]
