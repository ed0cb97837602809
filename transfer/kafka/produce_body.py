"""Produce requests of whole batches, written straight into segments: no object per partition (KIP-482).

Owns the flexible versions that every broker since 2.4 speaks; older ones go the general way, by
`protocol.codec`. What it writes is the same, byte for byte (a test compares them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final

from protocol.codec.wire import string_length, uvarint
from protocol.types import Buffer, TopicPartition

VERSIONS: Final = range(9, 14)
_IDS_FROM: Final = 13
_ALL: Final = -1
_HEAD: Final = Struct(">hi")
_INDEX: Final = Struct(">i")


def produce_body(
    version: int,
    timeout_ms: int,
    batches: Iterable[tuple[TopicPartition, list[Buffer]]],
    topic_id: Callable[[str], bytes],
    transactional_id: str | None = None,
) -> list[Buffer] | None:
    """The request after its header (acks=all), None for versions that are not written here.

    Each partition has one batch, as two segments: its header and its payload.
    """
    if version not in VERSIONS:
        return None
    topics: dict[str, list[tuple[int, list[Buffer]]]] = {}
    for (name, index), segments in batches:
        topics.setdefault(name, []).append((index, segments))
    body: list[Buffer] = []
    small = _text(transactional_id) + _HEAD.pack(_ALL, timeout_ms) + uvarint(len(topics) + 1)
    for name, partitions in topics.items():
        text = name.encode()
        small += topic_id(name) if version >= _IDS_FROM else string_length(len(text)) + text
        small += uvarint(len(partitions) + 1)
        for index, (front, payload) in partitions:
            size = uvarint(len(front) + len(payload) + 1)
            body.append(small + _INDEX.pack(index) + size + front)
            body.append(payload)
            small = b"\0"
        small += b"\0"
    body.append(small + b"\0")
    return body


def _text(value: str | None) -> bytes:
    if value is None:
        return b"\0"
    text = value.encode()
    return string_length(len(text)) + text
