"""Produce requests of whole batches, written straight into segments, and the answers that say only where
each batch is: no object per partition (KIP-482).

Owns the flexible versions that every broker since 2.4 speaks; older ones, and answers with anything else in
them, go the general way, by `protocol.codec`. What is written and read is the same (tests compare them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import TYPE_CHECKING, Final

from protocol.codec import encode
from protocol.codec.wire import Malformed, read_uvarint, uvarint
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.types import Buffer
from transfer.kafka.topic_keys import read_key, written

if TYPE_CHECKING:
    from transfer.kafka.lane import Pending, ProduceLane

VERSIONS: Final = range(9, 14)
_IDS_FROM: Final = 13
_ALL: Final = -1
_HEAD: Final = Struct(">hi")
_INDEX: Final = Struct(">i")
_PLACED: Final = Struct(">ihqqq3s")
"""Partition, error code, base offset, append time, log start offset; record errors, message and tags."""
_NOTHING_MORE: Final = b"\1\0\0"


def produce_body(
    version: int,
    timeout_ms: int,
    batches: Mapping[str, Mapping[int, tuple[ProduceLane, Pending]]],
    topic_id: Callable[[str], bytes],
    transactional_id: str | None = None,
) -> list[Buffer]:
    """The request after its header (acks=all).

    `batches` are by topic and partition, each sealed: two segments, its header and its payload.
    """
    if version not in VERSIONS:
        return encode(_request(timeout_ms, batches, topic_id, transactional_id), version)
    body: list[Buffer] = []
    small = _text(transactional_id) + _HEAD.pack(_ALL, timeout_ms) + uvarint(len(batches) + 1)
    for name, partitions in batches.items():
        small += topic_id(name) if version >= _IDS_FROM else written(name)
        small += uvarint(len(partitions) + 1)
        for index, (_, pending) in partitions.items():
            front, payload = pending.segments or (b"", b"")
            size = uvarint(len(front) + len(payload) + 1)
            body += (small + _INDEX.pack(index) + size + front, payload)
            small = b"\0"
        small += b"\0"
    body.append(small + b"\0")
    return body


def _request(
    timeout_ms: int,
    batches: Mapping[str, Mapping[int, tuple[ProduceLane, Pending]]],
    topic_id: Callable[[str], bytes],
    transactional_id: str | None,
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=_ALL,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=topic_id(name),
                partition_data=[
                    PartitionProduceData(index=index, records=pending.segments)
                    for index, (_, pending) in partitions.items()
                ],
            )
            for name, partitions in batches.items()
        ],
    )


def landed(version: int, frame: memoryview) -> list[tuple[bytes | str, int, int]] | None:
    """(topic, partition, base offset) of each batch, the topic by id from v13 on; None where the answer says
    more than that (errors, new leaders), is damaged or of another version.

    `frame` is the whole answer, with its header (v1).
    """
    if version not in VERSIONS:
        return None
    found: list[tuple[bytes | str, int, int]] = []
    try:
        if frame[4]:
            return None
        topics, pos = read_uvarint(frame, 5)
        for _ in range(topics - 1):
            key, pos = read_key(frame, pos, by_id=version >= _IDS_FROM)
            partitions, pos = read_uvarint(frame, pos)
            for _ in range(partitions - 1):
                index, code, base_offset, _, _, rest = _PLACED.unpack_from(frame, pos)
                if code or rest != _NOTHING_MORE:
                    return None
                found.append((key, index, base_offset))
                pos += _PLACED.size
            if frame[pos]:
                return None
            pos += 1
        return None if frame[pos + 4] else found  # behind the throttle time
    except (IndexError, StructError, UnicodeDecodeError, Malformed):
        return None


def _text(value: str | None) -> bytes:
    return b"\0" if value is None else written(value)
