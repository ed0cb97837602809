"""Kafka Connect's topic of source offsets at the target, where MirrorMaker 2 keeps its progress.

Owns its keys and values (MirrorUtils.wrapPartition by OffsetStorageWriter, as JSON without schemas), reading
them and writing them. Connect looks a partition up by the bytes of its key, so these have to be as it writes
them. The stored offset is the last one copied: a task goes on behind it, and where none is stored at the
log's start (MirrorSourceTask.initializeConsumer). Offsets here are those of the next record to read.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from protocol.client import ClusterClient, NewTopic, TopicMetadata
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.records.building import build_batch
from protocol.records.record import Record
from protocol.types import TopicPartition
from replicator.mirrormaker.history import Copy
from replicator.mirrormaker.reading import committed
from replicator.settings import TakeOver
from replicator.troubles import now_ms

_log = logging.getLogger("isthmus.replicator")

_ROWS_PER_BATCH: Final = 1000
_LOOKS, _LOOK_AGAIN_S = 100, 0.1


class NotToldError(ProtocolError):
    """The target does not say whether MirrorMaker 2 was here, or still is: all might be copied twice."""

    def __init__(self, name: str, code: ErrorCode) -> None:
        super().__init__(
            f"whether MirrorMaker 2 has copied before or still copies is not known: {code.name} about {name}"
        )
        self.to_do = {
            ErrorCode.TOPIC_AUTHORIZATION_FAILED: f"grant the link's user DESCRIBE and READ on topic {name}",
            ErrorCode.GROUP_AUTHORIZATION_FAILED: f"grant the link's user DESCRIBE on group {name}",
        }.get(code, "")


@dataclass(slots=True)
class ConnectOffsets:
    """Rows of one connector about one source cluster."""

    partitions: int
    """Of the topic."""
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    """Next source offset."""
    forgotten: set[TopicPartition] = field(default_factory=set)
    """Somebody took back their progress, to have them copied again."""
    places: dict[TopicPartition, set[tuple[int, bytes]]] = field(default_factory=dict)
    """In which partition of the topic, under which key, rows of it stand."""

    def take(self, told: TakeOver, alias: str, number: int, row: Copy) -> None:
        """Takes in a row of partition `number`; null forgets. What cannot be read counts for nothing."""
        try:
            name, spot = json.loads(row.key or b"null")
            if name != told.connector or spot["cluster"] != alias:
                return
            tp = TopicPartition(str(spot["topic"]), int(spot["partition"]))
            value = json.loads(row.value) if row.value is not None else None
            position = int(value["offset"]) + 1 if value is not None else None
        except (KeyError, TypeError, ValueError) as error:
            _log.warning("a row of MirrorMaker 2's progress cannot be read: %r (%r)", row.key, error)
            return
        self.places.setdefault(tp, set()).add((number, row.key or b""))
        if position is None:
            self.positions.pop(tp, None)
            self.forgotten.add(tp)
        else:
            self.positions[tp] = position
            self.forgotten.discard(tp)


async def left_progress(target: ClusterClient, topic: str) -> TopicMetadata | None:
    """MirrorMaker 2's topic of progress; None: it is not there. Raises NotToldError."""
    there = (await target.metadata([topic])).topics.get(topic)
    if there is None or there.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if there.error:  # it may be there: to begin anew would copy all of it once more
        raise NotToldError(topic, there.error)
    return there


async def read_offsets(target: ClusterClient, told: TakeOver, alias: str) -> ConnectOffsets | None:
    """None: the topic is not there. Raises NotToldError, ProtocolError."""
    there = await left_progress(target, told.offsets_topic)
    if there is None:
        return None
    made = ConnectOffsets(len(there.partitions))

    async def rows_of(number: int) -> list[Copy]:
        spot = TopicPartition(told.offsets_topic, number)
        return [row async for _, rows in committed(target, spot, 0) for row in rows]

    numbers = sorted(there.partitions)
    try:
        found = await asyncio.gather(*map(rows_of, numbers))
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise NotToldError(told.offsets_topic, error.code) from None
        raise
    for number, rows in zip(numbers, found, strict=True):
        for row in rows:
            made.take(told, alias, number, row)
    return made


async def create(
    target: ClusterClient, told: TakeOver, alias: str, replication_factor: int
) -> ConnectOffsets:
    """Makes the topic as Connect does; what it holds, for somebody else may have made it meanwhile."""
    topic = NewTopic(told.offsets_topic, told.partitions, replication_factor, {"cleanup.policy": "compact"})
    try:
        await target.create_topics([topic])
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    for _ in range(_LOOKS):
        made = await read_offsets(target, told, alias)
        if made is not None:
            return made
        await asyncio.sleep(_LOOK_AGAIN_S)
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{told.offsets_topic} was made")


async def write_offsets(
    target: ClusterClient,
    told: TakeOver,
    alias: str,
    before: ConnectOffsets,
    positions: Mapping[TopicPartition, int],
) -> None:
    """Stores next offsets; 0 is a null, for nothing is copied then. Beside where Connect looks, a row goes
    wherever an older one stands, or it might be taken for the newest."""
    now = now_ms()
    by_spot: dict[int, list[Record]] = {}
    for tp, position in positions.items():
        key = key_of(told.connector, alias, tp)
        places = before.places.get(tp, set()) | {(partition_of(key, before.partitions), key)}
        for number, name in places:
            by_spot.setdefault(number, []).append(Record(0, now, name, _value(position)))
    for number, rows in sorted(by_spot.items()):
        for first in range(0, len(rows), _ROWS_PER_BATCH):
            batch = build_batch(rows[first : first + _ROWS_PER_BATCH])
            try:
                await target.produce(TopicPartition(told.offsets_topic, number), batch)
            except KafkaError as error:
                if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    error.to_do = f"grant the link's user WRITE on topic {told.offsets_topic}"
                raise


def key_of(connector: str, alias: str, tp: TopicPartition) -> bytes:
    """As Connect writes it: the fields stand in the order of a Java HashMap."""
    spot = {"cluster": alias, "partition": tp.partition, "topic": tp.topic}
    return json.dumps([connector, spot], separators=(",", ":"), ensure_ascii=False).encode()


def _value(position: int) -> bytes | None:
    return b'{"offset":%d}' % (position - 1) if position > 0 else None


def partition_of(key: bytes, partitions: int) -> int:
    """Where Java's producer puts a key (BuiltInPartitioner.partitionForKey)."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def murmur2(data: bytes) -> int:
    """32 bits, with the seed that Kafka's clients have in common (org.apache.kafka.common.utils.Utils)."""
    mix, mask = 0x5BD1E995, 0xFFFF_FFFF
    length = len(data)
    found = 0x9747B28C ^ length
    for at in range(0, length - 3, 4):
        word = int.from_bytes(data[at : at + 4], "little") * mix & mask
        word = (word ^ word >> 24) * mix & mask
        found = found * mix & mask ^ word
    rest = data[length & ~3 :]
    if rest:
        found = (found ^ int.from_bytes(rest, "little")) * mix & mask
    found = (found ^ found >> 13) * mix & mask
    return found ^ found >> 15
