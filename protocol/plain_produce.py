"""The Produce request that makes up a broker's load, read and answered without an object per partition.

The same bytes as the compiled codec reads and writes (tests compare them), for the layout of versions 9 to 12
and for plain content: no transaction, no tagged fields, one batch of at most 2 MB in each partition. Whatever
else comes is left to the codec, also what does not decode, so nothing is refused here. Knows no handler.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import ClassVar, Final

from protocol.codec import decode_from
from protocol.codec.schema import Encoded
from protocol.codec.wire import uvarint
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.types import Buffer

PLAIN_VERSIONS: Final = range(9, 13)
MOST_PARTITIONS: Final = 200
"""Of one request, so that it is done in a few milliseconds; more are the codec's."""

_HEAD: Final = Struct(">BhiB")
"""Transactional id (0: null), acks, timeout in ms, number of topics + 1."""
_PARTITION: Final = Struct(">i3B")
"""Index, and the length of the records + 1 as far as it has so many bytes."""
_ACK: Final = Struct(">ihqqqBH")
"""Index, error code, base offset, append time, log start offset, number of record errors + 1, no message and
no tags.
"""
_FRONT: Final = Struct(">iix")
"""Size, correlation id, no tags."""
_MORE: Final = 0x80
_HEADER_SIZE: Final = 61
_ATTRIBUTES_AT: Final = 22
_TRANSACTIONAL: Final = 0x10


class PlainProduce:
    """What was asked for: one batch by partition by topic. The batches are slices of the frame."""

    __slots__ = ("acks", "timeout_ms", "topics")

    def __init__(self, acks: int, timeout_ms: int, topics: dict[str, dict[int, memoryview]]) -> None:
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics

    def to_request(self) -> ProduceRequest:
        """The same as a message."""
        return ProduceRequest(
            acks=self.acks,
            timeout_ms=self.timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=name,
                    partition_data=[PartitionProduceData(index=i, records=part) for i, part in parts.items()],
                )
                for name, parts in self.topics.items()
            ],
        )


def decode_produce(version: int, frame: memoryview, pos: int) -> PlainProduce | ProduceRequest:
    """The request whose body starts at `pos`. Raises DecodeError."""
    plain = read_plain(frame, pos) if version in PLAIN_VERSIONS else None
    return decode_from(ProduceRequest, version, frame, pos)[0] if plain is None else plain


def read_plain(frame: memoryview, pos: int) -> PlainProduce | None:
    """None for everything that takes a closer look. Of a partition that is named twice the last batch counts,
    as in Kafka.
    """
    try:
        transactional_id, acks, timeout_ms, count = _HEAD.unpack_from(frame, pos)
        if transactional_id or not 0 < count < _MORE:
            return None
        pos += _HEAD.size
        topics: dict[str, dict[int, memoryview]] = {}
        room = MOST_PARTITIONS
        for _ in range(count - 1):
            end = pos + frame[pos]
            name = str(frame[pos + 1 : end], "utf-8")
            parts = frame[end]
            room -= parts
            if not pos < end < pos + _MORE or not 0 < parts < _MORE or room < 0 or name in topics:
                return None
            batches: dict[int, memoryview] = {}
            topics[name] = batches
            pos = _read_batches(frame, end + 1, parts - 1, batches)
            if not pos:
                return None
        return None if frame[pos] else PlainProduce(acks, timeout_ms, topics)
    except (IndexError, StructError, UnicodeDecodeError):
        return None


def _read_batches(frame: memoryview, pos: int, count: int, batches: dict[int, memoryview]) -> int:
    """The position after the topic; 0 when something in it is not plain."""
    for _ in range(count):
        index, size, second, third = _PARTITION.unpack_from(frame, pos)
        if size < _MORE:
            pos += 5
        elif second < _MORE:
            size += (second << 7) - _MORE
            pos += 6
        elif third < _MORE:
            size += (second << 7) - _MORE - (_MORE << 7) + (third << 14)
            pos += 7
        else:
            return 0
        stop = pos + size - 1
        if size <= _HEADER_SIZE or frame[stop] or frame[pos + _ATTRIBUTES_AT] & _TRANSACTIONAL:
            return 0
        batches[index] = frame[pos:stop]
        pos = stop + 1
    return 0 if frame[pos] else pos + 1


Ack = tuple[int, int, int]
"""Partition, base offset and log start offset of what was appended."""


class PlainAcks(Encoded):
    """The answer where every partition has taken its batch and the topics keep the producer's times."""

    __slots__ = ()
    API_KEY: ClassVar[int] = 0

    def __init__(self, topics: Mapping[str, Sequence[Ack]]) -> None:
        pack = _ACK.pack
        out = [uvarint(len(topics) + 1)]
        for topic, acks in topics.items():
            name = topic.encode()
            out += (uvarint(len(name) + 1), name, uvarint(len(acks) + 1))
            out += [pack(index, 0, base, -1, start, 1, 0) for index, base, start in acks]
            out.append(b"\0")
        out.append(bytes(5))  # no throttling, no tags
        super().__init__([b"".join(out)])

    def framed(self, correlation_id: int) -> list[Buffer]:
        """The whole response with size and header, as `encode_response` makes it."""
        body = self.segments[0]
        return [_FRONT.pack(_FRONT.size - 4 + len(body), correlation_id) + body]
