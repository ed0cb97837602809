"""A reader's side of an incremental fetch session (KIP-227): what the broker was told, and what to tell next.

Followers and links use it. Pure. With thousands of partitions most stand still between two fetches; a session
names only those that moved, came or went. (Kafka: `FetchSessionHandler`.)
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from protocol.messages.fetch_request import FetchPartition, FetchTopic, ForgottenTopic

_INITIAL_EPOCH = 0
_NO_SESSION = 0
_LAST_EPOCH = 0x7FFF_FFFF

Key = tuple[bytes, int]
"""Topic id and partition."""


class Position(NamedTuple):
    """Where a reader stands in a partition, as its fetches say it."""

    offset: int
    leader_epoch: int
    last_epoch: int
    """Epoch of the last batch that it has: the leader answers with where that epoch ended there (KIP-595)."""
    start_offset: int = -1
    """Of a follower's own log; others have none."""


class FetchSession:
    """One session at one broker: `want` and `forget` say what it is about, `next` what to ask for that.

    After `reset` the next request is a full one, which begins another session in place of this one.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.session_id = _NO_SESSION
        self.epoch = _INITIAL_EPOCH
        self._wanted: dict[Key, Position] = {}
        self._told: set[Key] = set()  # the broker's partitions of the session
        self._changed: dict[Key, Position] = {}
        self._gone: dict[Key, None] = {}

    def __bool__(self) -> bool:
        """Whether anything is wanted."""
        return bool(self._wanted)

    def want(self, key: Key, position: Position) -> None:
        if self._wanted.get(key) != position:
            self._wanted[key] = self._changed[key] = position
            self._gone.pop(key, None)

    def forget(self, key: Key) -> None:
        if self._wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            if key in self._told:
                self._gone[key] = None

    @property
    def stands(self) -> bool:
        """Whether the broker has it, as far as one knows."""
        return self.epoch != _INITIAL_EPOCH

    def reset(self, *, gone: bool = False) -> None:
        """`gone`: the broker has said that it has none. Else the next request names it, so that its slot is
        free again (Kafka: `FetchMetadata`)."""
        self.epoch = _INITIAL_EPOCH
        if gone:
            self.session_id = _NO_SESSION

    def next(self) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """What to put into the next request, so that the broker serves exactly what is wanted."""
        if self.epoch == _INITIAL_EPOCH:
            changed, gone = self._wanted, {}
            self._told = set(changed)
        else:
            changed, gone = self._changed, self._gone
            self._told.update(changed)
            self._told.difference_update(gone)
        by_topic: dict[bytes, list[FetchPartition]] = defaultdict(list)
        for (topic_id, index), position in changed.items():
            by_topic[topic_id].append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_epoch,
                    log_start_offset=position.start_offset,
                    partition_max_bytes=self._max_bytes,
                )
            )
        forgotten: dict[bytes, list[int]] = defaultdict(list)
        for topic_id, index in gone:
            forgotten[topic_id].append(index)
        self._changed, self._gone = {}, {}
        return (
            [FetchTopic(topic_id=topic_id, partitions=parts) for topic_id, parts in by_topic.items()],
            [ForgottenTopic(topic_id=topic_id, partitions=each) for topic_id, each in forgotten.items()],
        )

    def answered(self, session_id: int) -> None:
        """The broker has taken the request."""
        if self.epoch == _INITIAL_EPOCH:
            self.session_id = session_id
            if session_id == _NO_SESSION:  # it has no room for one: the next request is full again
                return
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1
