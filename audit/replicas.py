"""Do all replicas of a partition hold the same bytes? Read from each broker and compared batch by batch.

Owns the comparison and its verdict. Compared are whole batches with offsets, leader epochs and checksums, up
to each replica's high watermark. Where a topic is compacted every replica cleans by itself, so batches may
differ rightly: there, records that two replicas hold at one offset have to be equal (I2).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from audit.replica_batches import Extent, Piece, Replica, Split
from protocol.client import Broker, Connection
from protocol.client.access import Access
from protocol.client.properties import client_security
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.records import BatchHeader, check_crc, read_header, read_records
from protocol.types import TopicPartition

_SHOWN = 10
_SETTLE_S = 10.0
_PAUSE_S = 0.2
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """What is to be compared: brokers that hold the partition, by id."""

    partition: TopicPartition
    leader: int
    brokers: Mapping[int, Broker]
    missing: tuple[int, ...] = ()
    """Replicas whose broker the cluster does not name: it is down."""
    compacted: bool = False
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """How to be let in to the brokers."""


@dataclass(slots=True)
class Comparison:
    """Of one partition. `unread` says of replicas why they were not compared to their end."""

    partition: TopicPartition
    extents: dict[int, Extent] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)
    pieces: int = 0
    bytes: int = 0
    cleaned_apart: int = 0
    """Records of a compacted topic that not every replica still has."""
    count: int = 0
    differences: list[dict[str, Any]] = field(default_factory=list)
    """The first ones: offset, and what each replica has there."""

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "replicas": {
                str(number): {"start": extent.start, "high_watermark": extent.high_watermark}
                for number, extent in sorted(self.extents.items())
            },
            "unread": {str(number): why for number, why in sorted(self.unread.items())},
            "compared": self.pieces,
            "bytes": self.bytes,
            "cleaned_apart": self.cleaned_apart,
            "differences": self.count,
            "examples": self.differences,
        }


async def partitions_of(access: Access, topics: Sequence[str]) -> list[PartitionReplicas]:
    """All partitions of these topics, or of all. Raises KafkaError for a topic that is not there."""
    async with access.client("isthmus-audit") as client:
        metadata = await client.metadata(list(topics) or None)
        found = []
        for name, topic in sorted(metadata.topics.items()):
            if topic.error:
                raise KafkaError(topic.error, f"topic '{name}'")
            settings = (await client.describe_configs([name]))[name]
            policy = settings["cleanup.policy"].value if "cleanup.policy" in settings else None
            for index, state in sorted(topic.partitions.items()):
                known = {each: metadata.brokers[each] for each in state.replicas if each in metadata.brokers}
                found.append(
                    PartitionReplicas(
                        TopicPartition(name, index),
                        state.leader,
                        known,
                        tuple(each for each in state.replicas if each not in known),
                        "compact" in (policy or ""),
                        access.properties,
                    )
                )
    return found


async def compare_replicas(asked: PartitionReplicas) -> Comparison:
    """Never raises for one replica: why it was not read is part of the answer."""
    result = Comparison(asked.partition, unread=dict.fromkeys(asked.missing, "its broker is down"))
    async with AsyncExitStack() as stack:
        replicas: dict[int, Replica] = {}
        security = client_security(asked.properties)
        for number, broker in asked.brokers.items():
            try:
                connection = await Connection.open(
                    broker.host,
                    broker.port,
                    client_id="isthmus-replicas",
                    timeout_s=_TIMEOUT_S,
                    ssl=security.ssl,
                    sasl=security.sasl,
                )
                stack.push_async_callback(connection.close)
                replicas[number] = Replica(connection, asked.partition)
                result.extents[number] = await replicas[number].extent()
            except (ProtocolError, OSError, TimeoutError) as error:
                replicas.pop(number, None)
                result.extents.pop(number, None)
                result.unread[number] = str(error)
        await _settle(replicas, result, asked.leader)
        if result.extents:
            await _compare(replicas, result, asked.compacted)
    return result


async def _settle(replicas: Mapping[int, Replica], result: Comparison, leader: int) -> None:
    """Give followers a moment to hear of the leader's high watermark; who stays behind is named."""
    if leader not in result.extents:
        return
    goal = result.extents[leader].high_watermark
    deadline = asyncio.get_running_loop().time() + _SETTLE_S
    behind = {number for number, extent in result.extents.items() if extent.high_watermark < goal}
    while behind and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(_PAUSE_S)
        for number in sorted(behind):
            try:
                result.extents[number] = await replicas[number].extent()
            except (ProtocolError, OSError, TimeoutError) as error:
                result.unread[number] = str(error)
        behind = {number for number in behind if result.extents[number].high_watermark < goal}
    for number in behind:
        reached = result.extents[number].high_watermark
        result.unread.setdefault(
            number, f"knows {reached} of {goal} offsets as readable; compared up to there"
        )


async def _compare(replicas: Mapping[int, Replica], result: Comparison, compacted: bool) -> None:
    split = _by_record if compacted else _by_batch
    goal = max(extent.high_watermark for extent in result.extents.values())
    start = max(extent.start for extent in result.extents.values())
    cursors = {
        number: _Cursor(replicas[number], start, min(extent.high_watermark, goal), split)
        for number, extent in result.extents.items()
    }
    for number, cursor in list(cursors.items()):
        await _step(number, cursor, cursors, result)
    while waiting := {number: cursor.piece for number, cursor in cursors.items() if cursor.piece is not None}:
        offset = min(piece[0] for piece in waiting.values())
        here = {number: piece[1] for number, piece in waiting.items() if piece[0] == offset}
        # Who has not come that far is not lacking it: its high watermark is in `unread`.
        absent = [number for number, cursor in cursors.items() if number not in here and offset < cursor.end]
        result.pieces += 1
        result.bytes += max(map(len, here.values()))
        if len(set(here.values())) > 1 or (absent and not compacted):
            result.count += 1
            if len(result.differences) < _SHOWN:
                result.differences.append(_difference(offset, here, absent, compacted))
        elif absent:
            result.cleaned_apart += 1
        for number in here:
            await _step(number, cursors[number], cursors, result)


async def _step(number: int, cursor: _Cursor, cursors: dict[int, _Cursor], result: Comparison) -> None:
    try:
        await cursor.advance()
    except (ProtocolError, OSError, TimeoutError) as error:
        result.unread[number] = str(error)
        cursors.pop(number, None)


class _Cursor:
    """Where one replica's reading stands; `piece` is None at its end."""

    def __init__(self, replica: Replica, start: int, end: int, split: Split) -> None:
        self.end = end
        self.piece: Piece | None = None
        self._pieces: AsyncIterator[Piece] = replica.pieces(start, end, split)

    async def advance(self) -> None:
        self.piece = await anext(self._pieces, None)


def _by_batch(records: memoryview, at: int, header: BatchHeader) -> Iterator[Piece]:
    if not check_crc(records, at, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} is damaged")
    yield header.base_offset, bytes(records[at : at + header.size])


def _by_record(records: memoryview, at: int, header: BatchHeader) -> Iterator[Piece]:
    if not check_crc(records, at, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} is damaged")
    for record in read_records(records, at, header):
        content = (record.timestamp, record.key, record.value, record.headers)
        yield record.offset, repr(content).encode()


def _difference(
    offset: int, here: Mapping[int, bytes], absent: Sequence[int], compacted: bool
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        str(number): _shown(content, compacted) for number, content in sorted(here.items())
    }
    shown |= {str(number): None for number in absent}
    return {"offset": offset, "replicas": shown}


def _shown(content: bytes, compacted: bool) -> dict[str, Any]:
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    if compacted:
        return {"digest": digest}
    header = read_header(content)
    return {
        "last_offset": header.last_offset,
        "leader_epoch": header.leader_epoch,
        "records": header.record_count,
        "crc": f"{header.crc:08x}",
        "bytes": len(content),
        "digest": digest,
    }


async def compare_all(asked: Sequence[PartitionReplicas], *, at_once: int = 4) -> list[Comparison]:
    """In the order of `asked`."""
    room = asyncio.Semaphore(at_once)

    async def one(each: PartitionReplicas) -> Comparison:
        async with room:
            return await compare_replicas(each)

    return list(await asyncio.gather(*map(one, asked)))


def compare_with_spark(session: Any, asked: Sequence[PartitionReplicas]) -> list[dict[str, Any]]:
    """`Comparison.as_json` of each, computed by Spark's workers, which have to reach every broker."""
    spread = session.sparkContext.parallelize(list(asked), min(len(asked), 64) or 1)
    return [json.loads(text) for text in spread.map(_compare_as_text).collect()]


def _compare_as_text(asked: PartitionReplicas) -> str:
    return json.dumps(asyncio.run(compare_replicas(asked)).as_json())
