"""Fetch requests without a session, written straight into bytes, and the answers that hold nothing but
records: no object per partition (KIP-482).

Owns the flexible versions that every broker since 2.7 speaks; older ones, and answers with anything else in
them (errors, aborted transactions, new leaders), go the general way, by `protocol.codec`. What is written and
read is the same (tests compare them).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple

from protocol.codec import encode
from protocol.codec.wire import Malformed, read_uvarint, uvarint
from protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from protocol.types import Buffer
from transfer.kafka.reading import Reading
from transfer.kafka.topic_keys import read_key, written

VERSIONS: Final = range(12, 19)
IDS_FROM: Final = 13
_NO_REPLICA_FROM: Final = 15
"""A consumer says that it is no replica by leaving that out (KIP-903)."""
_HEAD: Final = Struct(">iiibii")
"""Longest wait, least bytes, most bytes, isolation level, session id, session epoch."""
READ_COMMITTED: Final = 1
_NO_SESSION: Final = (0, -1)
_PARTITION: Final = Struct(">iiqiqix")
"""Partition, leader epoch, offset, epoch of the last batch, log start, most bytes, no tags."""
ANSWER: Final = Struct(">4xBihi")
"""Behind the correlation id: the header's tags, throttle time, error code, session id."""
_READ: Final = Struct(">ihqqqBi")
"""Partition, error code, high watermark, last stable offset, log start offset, number of aborted transactions
+ 1 (0: null), preferred replica."""
_NO_TAGS: Final = 0


_EPOCH_FROM: Final = 12
"""Older versions of Fetch do not ask for the epoch of the last batch (KIP-320, KIP-595)."""


class Read(NamedTuple):
    """What an answer holds of one partition without trouble. `topic` is the id from v13 on."""

    topic: bytes | str
    partition: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: memoryview


def fetch_body(
    version: int, readings: Iterable[Reading], *, max_wait_ms: int, max_bytes: int, partition_max_bytes: int
) -> list[Buffer]:
    """The request after its header (read committed, at least one byte)."""
    if version not in VERSIONS:
        request = fetch_request(
            version,
            readings,
            max_wait_ms=max_wait_ms,
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
        )
        return encode(request, version)
    by_id = version >= IDS_FROM
    topics: dict[bytes | str, list[Reading]] = {}
    for reading in readings:  # one name may be that of two topics: one that was made again
        topics.setdefault(reading.topic_id if by_id else reading.tp.topic, []).append(reading)
    body = b"" if version >= _NO_REPLICA_FROM else b"\xff\xff\xff\xff"
    body += _HEAD.pack(max_wait_ms, 1, max_bytes, READ_COMMITTED, *_NO_SESSION) + uvarint(len(topics) + 1)
    parts: list[bytes] = [body]
    for key, those in topics.items():
        parts.append(written(key) if isinstance(key, str) else key)
        parts.append(uvarint(len(those) + 1))
        parts += [
            _PARTITION.pack(
                reading.tp.partition,
                reading.leader_epoch,
                reading.position,
                reading.last_epoch,
                -1,
                partition_max_bytes,
            )
            for reading in those
        ]
        parts.append(b"\0")
    parts.append(b"\1\1\0")  # nothing is forgotten, no rack, no tags
    return [b"".join(parts)]


def fetch_request(
    version: int,
    readings: Iterable[Reading],
    *,
    max_wait_ms: int,
    max_bytes: int,
    partition_max_bytes: int,
) -> FetchRequest:
    """One Fetch of this version for all `readings`, without a session, read committed."""
    topics: dict[str, FetchTopic] = {}
    for reading in readings:
        name, index = reading.tp
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(topic=name, topic_id=reading.topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=reading.leader_epoch,
                fetch_offset=reading.position,
                last_fetched_epoch=reading.last_epoch if version >= _EPOCH_FROM else -1,
                partition_max_bytes=partition_max_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=READ_COMMITTED,
        topics=list(topics.values()),
    )


def read(version: int, frame: memoryview) -> list[Read] | None:
    """What an answer holds by partition; None where it says more than that, is damaged or of another version.

    `frame` is the whole answer, with its header (v1).
    """
    if version not in VERSIONS:
        return None
    found: list[Read] = []
    try:
        tags, _, code, _ = ANSWER.unpack_from(frame)
        if tags or code:
            return None
        topics, pos = read_uvarint(frame, ANSWER.size)
        for _ in range(topics - 1):
            key, pos = read_key(frame, pos, by_id=version >= IDS_FROM)
            partitions, pos = read_uvarint(frame, pos)
            for _ in range(partitions - 1):
                index, code, high, stable, start, aborted, replica = _READ.unpack_from(frame, pos)
                if code or aborted > 1 or replica >= 0:
                    return None
                size, pos = read_uvarint(frame, pos + _READ.size)
                behind = pos + size - 1 if size else pos
                if frame[behind] != _NO_TAGS:
                    return None
                found.append(Read(key, index, high, stable, start, frame[pos:behind]))
                pos = behind + 1
            if frame[pos] != _NO_TAGS:
                return None
            pos += 1
        return None if frame[pos] != _NO_TAGS else found
    except (IndexError, StructError, UnicodeDecodeError, Malformed):
        return None
