"""MirrorMaker 2's record layouts: offset syncs, checkpoints, heartbeats (byte for byte).

Owns bytes only. Kafka's `Type.STRING` is a 16-bit length and UTF-8; numbers are big-endian. An offset sync
has no version; the others carry a 16-bit version 0 in front of the value (org.apache.kafka.connect.mirror
OffsetSync, Checkpoint, Heartbeat).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

LONGEST_TEXT = 0x7FFF
"""Bytes that `Type.STRING` holds."""
_VERSION = 0


class LayoutError(ValueError):
    """Bytes that are not the record they should be."""


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """One record's offset at the source and at the target."""

    topic: str
    partition: int
    upstream: int
    downstream: int

    def key(self) -> bytes:
        return _string(self.topic) + struct.pack(">i", self.partition)

    def value(self) -> bytes:
        return struct.pack(">qq", self.upstream, self.downstream)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> OffsetSync:
        fields = _Reader(key)
        topic, partition = fields.string(), fields.number(">i")
        fields.end()
        numbers = _Reader(value)
        made = cls(topic, partition, numbers.number(">q"), numbers.number(">q"))
        numbers.end()
        return made


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A group's position; `topic` is the target's name."""

    group: str
    topic: str
    partition: int
    upstream: int
    downstream: int
    metadata: str = ""

    def key(self) -> bytes:
        return _string(self.group) + _string(self.topic) + struct.pack(">i", self.partition)

    def value(self) -> bytes:
        return struct.pack(">hqq", _VERSION, self.upstream, self.downstream) + _string(self.metadata)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> Checkpoint:
        fields = _Reader(key)
        group, topic, partition = fields.string(), fields.string(), fields.number(">i")
        fields.end()
        body = _Reader(value)
        body.version()
        made = cls(group, topic, partition, body.number(">q"), body.number(">q"), body.string())
        body.end()
        return made


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life of the flow from `source` to `target`."""

    source: str
    target: str
    timestamp_ms: int

    def key(self) -> bytes:
        return _string(self.source) + _string(self.target)

    def value(self) -> bytes:
        return struct.pack(">hq", _VERSION, self.timestamp_ms)

    @classmethod
    def read(cls, key: bytes, value: bytes) -> Heartbeat:
        fields = _Reader(key)
        source, target = fields.string(), fields.string()
        fields.end()
        body = _Reader(value)
        body.version()
        made = cls(source, target, body.number(">q"))
        body.end()
        return made


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > LONGEST_TEXT:
        raise LayoutError(f"a text of {len(data)} bytes does not fit a 16-bit length")
    return struct.pack(">h", len(data)) + data


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    def number(self, layout: str) -> int:
        try:
            (value,) = struct.unpack_from(layout, self._data, self._pos)
        except struct.error as error:
            raise LayoutError("a record is cut short") from error
        self._pos += struct.calcsize(layout)
        return int(value)

    def string(self) -> str:
        length = self.number(">h")
        end = self._pos + length
        if length < 0 or end > len(self._data):
            raise LayoutError(f"a text of {length} bytes does not fit its record")
        try:
            text = self._data[self._pos : end].decode()
        except UnicodeDecodeError as error:
            raise LayoutError("a text is not UTF-8") from error
        self._pos = end
        return text

    def version(self) -> None:
        version = self.number(">h")
        if version != _VERSION:
            raise LayoutError(f"version {version} is not known")

    def end(self) -> None:
        if self._pos != len(self._data):
            raise LayoutError(f"{len(self._data) - self._pos} bytes behind the end of a record")
