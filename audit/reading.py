"""Reading one split to its end, in a Spark task or anywhere else.

Owns bounded reading: a range is complete only when the position has passed its end, and a range that gives
nothing for too long is an error, never an empty range. Control batches and aborted transactions are no data.
Clusters are read by the transfer's own source, backups by the restore's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from audit.digest import BatchDigests, batch_digests
from audit.errors import SplitError
from audit.lanes import Split
from audit.settings import BackupSide, ClusterSide
from connectors import catalogue
from connectors.backup_source import BackupSource
from connectors.errors import ConnectorError
from connectors.object_store import open_store
from protocol.errors import ProtocolError
from protocol.records.header import check_crc, iter_headers
from protocol.types import uuid_from_text
from replicator.origin import ORIGIN_HEADER
from transfer.endpoint import Chunk, SourceFault
from transfer.kafka.source import KafkaSource
from transfer.rewrite import AbortedFilter


async def read_split(
    side: ClusterSide | BackupSide,
    split: Split,
    *,
    stall_s: float,
    ignore_headers: tuple[bytes, ...] = (),
    topic_id: str = "",
) -> AsyncGenerator[BatchDigests, None]:
    """Digests batch by batch; ends normally only when the whole range was read. Raises SplitError."""
    where = f"{split.tp.topic}-{split.tp.partition} of {side}, offsets {split.start} to {split.end - 1}"
    chunks = (
        _cluster(side, split, stall_s, topic_id) if isinstance(side, ClusterSide) else _backup(side, split)
    )
    position = split.start
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                aborted = AbortedFilter(chunk)
                for pos, header in iter_headers(chunk.batches):
                    outside = header.next_offset <= split.start or header.base_offset >= split.end
                    if aborted.skips(pos, header) or outside or not header.record_count:
                        continue
                    if not check_crc(chunk.batches, pos, header):
                        raise SplitError(f"{where}: the batch at {header.base_offset} fails its checksum")
                    yield batch_digests(
                        chunk.batches,
                        pos,
                        header,
                        with_timestamp=split.with_timestamp,
                        ignore_headers=ignore_headers,
                        with_keys=split.compacted,
                        way_in=ORIGIN_HEADER.encode() if split.place else b"",
                    )
                position = chunk.next_offset
    except (ProtocolError, ConnectorError) as error:
        raise SplitError(f"{where}: {error}") from error
    if position < split.end:
        raise SplitError(f"{where}: reading ended at {position}")


async def _cluster(
    side: ClusterSide, split: Split, stall_s: float, topic_id: str
) -> AsyncGenerator[Chunk, None]:
    async with side.access.client("isthmus-audit") as client:
        source = KafkaSource(client)
        try:
            if topic_id:
                source.expect(split.tp, uuid_from_text(topic_id))
            await source.open(split.tp, split.start)
            position = split.start
            while position < split.end:
                try:
                    async with asyncio.timeout(stall_s):
                        arrived = await source.read()
                except TimeoutError:
                    raise SplitError(
                        f"{split.tp.topic}-{split.tp.partition} of {side}: not readable at offset {position} "
                        f"for {stall_s:.0f} s"
                    ) from None
                for item in arrived:
                    if isinstance(item, SourceFault):
                        raise SplitError(
                            f"{split.tp.topic}-{split.tp.partition} of {side}: {item.kind.value} at offset "
                            f"{item.position}: {item.message}"
                        )
                    yield item
                    position = item.next_offset
        finally:
            await source.aclose()


async def _backup(side: BackupSide, split: Split) -> AsyncGenerator[Chunk, None]:
    async with open_store(side.store) as store:
        source = BackupSource(store, await catalogue.read_manifest(store, side.backup_id))
        async with aclosing(source.chunks(split.tp, split.start)) as chunks:
            async for chunk in chunks:
                yield chunk
                if chunk.next_offset >= split.end:
                    return
