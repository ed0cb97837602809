"""Fetch sessions (KIP-227): what a reader asked for last time, so that it names only what changes.

Owns the cache of sessions and its rules: who gets a slot, who loses one, which epoch comes next. Plain state
with the clock passed in; what a fetch reads and answers is the handler's. A session belongs to topic names
(up to v12) or topic ids (from v13), never to both. (Kafka: `FetchSession`, `FetchManager`.)
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch_request import FetchPartition, FetchRequest

if TYPE_CHECKING:
    from broker.replication import Partition
    from broker.server.session_changes import SessionChanges

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_INT32 = 2**31 - 1
# A session that was not used for this long, or is this old, may be replaced by any other.
EVICTION_S = 120.0
IDS_FROM = 13
_UNKNOWN = -1

Key = tuple[str | bytes, int]
"""Topic name or topic id, and partition."""


class Wanted:
    """One partition of a fetch: what is asked, and what the session's reader was last told."""

    __slots__ = ("asked", "high_watermark", "log_start_offset", "partition", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: bytes, asked: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.asked = asked
        self.high_watermark = _UNKNOWN
        self.log_start_offset = _UNKNOWN
        self.partition: Partition | None = None
        """What the last pass found, so that an idle partition needs no look-up."""


Partitions = dict[Key, Wanted]


def partitions_of(request: FetchRequest, version: int) -> Partitions:
    """What a request names, in its order; of a partition named twice the last counts, as in Kafka."""
    by_id = version >= IDS_FROM
    found: Partitions = {}
    for topic in request.topics:
        name, topic_id = topic.topic, topic.topic_id
        key: str | bytes = topic_id if by_id else name
        for asked in topic.partitions:
            found[key, asked.partition] = Wanted(name, topic_id, asked)
    return found


@dataclass(slots=True, eq=False)
class FetchSession:
    """`epoch` is what the next request must say. `partitions` are in the order in which they are served."""

    session_id: int
    privileged: bool
    uses_ids: bool
    created_s: float
    partitions: Partitions
    epoch: int = 1
    used_s: float = 0.0
    cached_size: int = field(default=0)
    changes: SessionChanges | None = None
    """Of a follower's session: what has to be looked at."""

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The lowest goes first: followers stay, and then who would have most to send again."""
        return (self.privileged, self.cached_size, self.session_id)

    def key(self, wanted: Wanted) -> Key:
        """What `partitions` has it under."""
        return (wanted.topic_id if self.uses_ids else wanted.topic, wanted.asked.partition)

    def update(self, request: FetchRequest, version: int) -> None:
        """Add, change and forget partitions as an incremental request says."""
        changes = self.changes
        for key, wanted in partitions_of(request, version).items():
            known = self.partitions.get(key)
            if known is None:
                known = self.partitions[key] = wanted
            else:
                known.asked = wanted.asked
            if changes is not None:
                changes.asked(key, known)
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if self.uses_ids else topic.topic
            for index in topic.partitions:
                self.partitions.pop((name, index), None)
                if changes is not None:
                    changes.forget((name, index))


class FetchSessionCache:
    """At most `slots` sessions (`max.incremental.fetch.session.cache.slots`). `evictions` counts the lost."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.evictions = 0
        self._sessions: dict[int, FetchSession] = {}  # the longest unused first

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(list(self._sessions.values()))

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None and session.changes is not None:
            session.changes.close()

    def resume(self, request: FetchRequest, version: int, now_s: float) -> FetchSession:
        """The session of an incremental request, brought up to date. Raises KafkaError."""
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != (version >= IDS_FROM):
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request, version)
        if not session.partitions:
            self.close(session.session_id)
        else:
            session.epoch = 1 if session.epoch == _MAX_INT32 else session.epoch + 1
            self._touch(session, now_s)
        return session

    def create(
        self, partitions: Partitions, *, privileged: bool, uses_ids: bool, now_s: float
    ) -> FetchSession | None:
        """A new session if there is a slot for it, or one that may be taken."""
        if not self._has_slot(privileged, len(partitions), now_s):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = random.randrange(1, _MAX_INT32)
        session = FetchSession(session_id, privileged, uses_ids, now_s, partitions)
        self._touch(session, now_s)
        return session

    def _touch(self, session: FetchSession, now_s: float) -> None:
        session.used_s = now_s
        session.cached_size = len(session.partitions)
        self._sessions.pop(session.session_id, None)
        self._sessions[session.session_id] = session

    def _has_slot(self, privileged: bool, size: int, now_s: float) -> bool:
        if len(self._sessions) < self.slots:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_s - oldest.used_s > EVICTION_S:
            return self._evict(oldest)
        candidates = [
            session
            for session in self._sessions.values()
            if now_s - session.created_s > EVICTION_S or (privileged and not session.privileged)
        ]
        smallest = min(candidates, key=lambda session: session.rank, default=None)
        if smallest is None or (privileged, size, NO_SESSION) < smallest.rank:
            return False
        return self._evict(smallest)

    def _evict(self, session: FetchSession) -> bool:
        self.evictions += 1
        self.close(session.session_id)
        return True
