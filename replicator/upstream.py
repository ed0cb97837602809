"""Which topics called `….heartbeats` are heartbeats of clusters upstream, and which are somebody's own.

A link carries heartbeats on whatever `topics` says, so that the end of a chain sees its beginning. By its
name alone a user's `my.heartbeats` would be one of them, as it is for MirrorMaker 2. Owns looking into such
topics: what holds MirrorMaker 2's records is heartbeats (`layouts`). What `topics` names is copied unseen.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from protocol.client import LATEST, ClusterClient, TopicMetadata
from protocol.errors import ProtocolError
from protocol.records import decode_batches
from protocol.types import TopicPartition
from replicator.filters import TopicFilter
from replicator.layouts import Heartbeat, LayoutError

_LOOK_AGAIN_S = 5.0
_LAST = 20
"""So many offsets before the end are read: compaction and transactions leave holes."""


class Upstream:
    """Remembers by topic id what was found, so that each topic is read once."""

    def __init__(self, source: ClusterClient) -> None:
        self._source = source
        self._are: dict[bytes, bool] = {}
        self._looked_at: dict[bytes, float] = {}

    async def look(self, topics: Mapping[str, TopicMetadata], wanted: TopicFilter) -> None:
        """Tells the filter what is no heartbeats. What cannot be read now is none, and is read again."""
        for name in wanted.heartbeats_by_name(topics):
            topic = topics[name]
            if not self._are.get(topic.topic_id) and self._is_due(topic.topic_id):
                self._are[topic.topic_id] = await self._holds_heartbeats(topic)
            wanted.tell(name, is_heartbeats=self._are.get(topic.topic_id, False))

    def _is_due(self, topic_id: bytes) -> bool:
        now = time.monotonic()
        if now < self._looked_at.get(topic_id, 0.0):
            return False
        self._looked_at[topic_id] = now + _LOOK_AGAIN_S
        return True

    async def _holds_heartbeats(self, topic: TopicMetadata) -> bool:
        for index in topic.partitions:
            try:
                if await self._ends_with_one(TopicPartition(topic.name, index)):
                    return True
            except ProtocolError:
                continue
        return False

    async def _ends_with_one(self, tp: TopicPartition) -> bool:
        end = (await self._source.list_offsets({tp: LATEST}))[tp].offset
        if end <= 0:
            return False
        fetched = await self._source.fetch(tp, max(0, end - _LAST), max_wait_ms=200, max_bytes=1 << 16)
        return any(
            _is_heartbeat(record.key, record.value)
            for record in list(decode_batches(fetched.records))[-_LAST:]
        )


def _is_heartbeat(key: bytes | None, value: bytes | None) -> bool:
    try:
        return key is not None and value is not None and bool(Heartbeat.read(key, value))
    except LayoutError:
        return False
