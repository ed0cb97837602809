"""Fetch requests within a session (KIP-227), for partitions at the end of their logs.

Owns what one connection has told its broker. With thousands of partitions most stand still between two
answers: named in each request and in each answer, they would cost both sides more than the data. Who catches
up is asked for without a session: in a session a broker serves in an order of its own, and what is new would
wait behind what was written long ago. Sessions need topic ids (Fetch v13).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from struct import error as StructError  # noqa: N812
from typing import Final

from protocol.client.fetch_session import FetchSession, Key, Position
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.fetch_request import FetchRequest
from protocol.types import Buffer
from transfer.kafka.fetch_body import ANSWER, IDS_FROM, READ_COMMITTED
from transfer.kafka.reading import Reading

_NO_SESSION: Final = 0
_FINAL_EPOCH: Final = -1
_NO_ROOM_S: Final = 30.0
"""For how long a broker without a free slot is not asked again. To name all partitions costs more with a
session than without, and others keep their slots for two minutes."""
_REFUSALS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class ReadingSession:
    """Of one connection. Each request that `body` makes is answered, and told to `heard`, before the next; or
    else `reset` is called."""

    def __init__(self, partition_max_bytes: int, worth_from: int, clock: Callable[[], float]) -> None:
        """`worth_from`: for fewer partitions no session is begun. `clock`: seconds that only grow."""
        self._session = FetchSession(partition_max_bytes)
        self._worth_from = worth_from
        self._told: dict[Reading, tuple[int, int, int]] = {}
        self._full = True
        self._clock = clock
        self._no_room_until = -inf

    def suits(self, version: int, picked: Collection[Reading]) -> bool:
        """Whether these are to be asked for within the session."""
        return bool(
            version >= IDS_FROM
            and len(picked) >= self._worth_from
            and (self.stands or self._clock() >= self._no_room_until)
            and not any(reading.catches_up for reading in picked)
        )

    def body(
        self, version: int, picked: Collection[Reading], *, max_wait_ms: int, max_bytes: int
    ) -> list[Buffer]:
        """A request after its header, for exactly these (read committed, at least one byte)."""
        before, session = self._told, self._session
        told = {reading: (reading.position, reading.leader_epoch, reading.last_epoch) for reading in picked}
        for reading in before.keys() - told.keys():  # first: another reading may be of the same partition
            session.forget(_key(reading))
        for reading, position in told.items():
            if before.get(reading) != position:
                session.want(_key(reading), Position(*position))
        self._told = told
        self._full = not session.stands
        topics, forgotten = session.next()
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=READ_COMMITTED,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        return encode(request, version)

    def heard(self, frame: memoryview) -> bool:
        """Notes an answer. False when it only says that there is no such session (any more): the same has to
        be asked once more, and is then asked in full."""
        try:
            tags, _, code, session_id = ANSWER.unpack_from(frame)
        except StructError:
            tags = 1
        if tags:  # nobody sends any; whoever reads the answer will see what it is
            self.reset()
            return True
        if not code:
            self._session.answered(session_id)
            if self._full and session_id == _NO_SESSION:
                self._no_room_until = self._clock() + _NO_ROOM_S
            return True
        refused_in_full = self._full
        self._session.reset(gone=code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return refused_in_full or code not in _REFUSALS

    def reset(self) -> None:
        """The next request names everything, and begins another session in place of this one."""
        self._session.reset()

    @property
    def stands(self) -> bool:
        """Whether the broker has a session of this connection, as far as one knows."""
        return self._session.stands

    def farewell(self, version: int) -> list[Buffer]:
        """A request after its header that ends the session and asks for nothing. It needs no answer."""
        session_id = self._session.session_id
        self._session.reset(gone=True)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session_id, session_epoch=_FINAL_EPOCH)
        return encode(request, version)


def _key(reading: Reading) -> Key:
    return reading.topic_id, reading.tp.partition
