"""One Fetch request at work: passes over what it asks for until there is enough, and the answer to it.

Owns the request's place in its session, the answer, and waiting for what is not there yet. What each
partition is answered is `fetch_pass`'s; `follower_fetch` is the same for brokers that follow. Must not know
how requests are registered. (Kafka: `ReplicaManager.fetchMessages`, `DelayedFetch`.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from broker.log import LogError
from broker.replication import Partition
from broker.replication.watched import Watcher
from broker.server.answer_order import Deferred
from broker.server.context import RequestContext
from broker.server.fetch_pass import UNKNOWN_LAST, FetchPass, Need, Pass, told
from broker.server.fetch_sessions import (
    FINAL_EPOCH,
    IDS_FROM,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    partitions_of,
)
from protocol.errors import ErrorCode
from protocol.messages.fetch_request import FetchRequest
from protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse

_ENDED: Any = object()
"""What a pass yields when it is over."""


class ClientFetch(FetchPass, Deferred):
    """One request: what to read from where, and the answer under construction.

    Waits for as many bytes as are missing to become readable, for a change of leadership, or for the time to
    be over.
    """

    __slots__ = (
        "_deadline", "_epoch", "_full", "_min_bytes", "_missing", "_open_below", "_session", "_timer",
        "_wake", "_watched",
    )  # fmt: skip

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        """Raises KafkaError when the request's session is not what it thinks."""
        super().__init__(request, context)
        sessions = self._broker.fetch_sessions
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._deadline = context.received_at + request.max_wait_ms / 1000
        self._session: FetchSession | None = None
        self._full = request.session_epoch == INITIAL_EPOCH
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            sessions.close(request.session_id)
            self._wanted = partitions_of(request, self._version)
        else:
            session = sessions.resume(request, self._version, context.received_at)
            # One that has forgotten all its partitions is over; what the request names is read all the same.
            self._session = session if session.partitions else None
            self._wanted = session.partitions or partitions_of(request, self._version)
        self._incremental = self._session is not None
        self._epoch = 0 if self._session is None else self._session.epoch
        self._watched: list[Partition] = []
        self._timer: asyncio.TimerHandle | None = None  # while it waits
        self._wake: Callable[[], None]

    @property
    def satisfied(self) -> bool:
        return (
            self._failed
            or self._size >= self._min_bytes
            or not self._has_something_to_wait_for
            or self._broker.clock.monotonic() >= self._deadline
        )

    @property
    def _has_something_to_wait_for(self) -> bool:
        return bool(self._leaders)

    # -- the answer

    def answer(self) -> FetchResponse:
        session = self._session
        if self._failed:  # what is not known comes last, as in Kafka
            self.found.sort(key=lambda each: UNKNOWN_LAST.get(each[1].error_code, 0))
        if session is not None:
            if session.epoch != self._epoch:  # a later request of the same session has been here meanwhile
                return FetchResponse(
                    error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session.session_id
                )
            self._advance(session)
        elif self._full:
            session = self._new_session()
        for partition, _, size in self._leaders:
            if size:
                self._broker.metrics.topic(partition.topic).bytes_out += size
        response = FetchResponse(session_id=NO_SESSION if session is None else session.session_id)
        response.node_endpoints = self.nodes
        topic: FetchableTopicResponse | None = None
        for wanted, data in self.found:
            if topic is None or topic.topic_id != wanted.topic_id or topic.topic != wanted.topic:
                topic = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id)
                response.responses.append(topic)
            topic.partitions.append(data)
        return response

    def _advance(self, session: FetchSession) -> None:
        """Remember what the reader is told; what has data goes to the end, so that all get their share."""
        partitions = session.partitions
        for wanted, data in self.found:
            told(wanted, data)
            if data.records:
                key = session.key(wanted)
                if partitions.pop(key, None) is not None:
                    partitions[key] = wanted

    def _new_session(self) -> FetchSession | None:
        for wanted, data in self.found:
            told(wanted, data)
        return self._broker.fetch_sessions.create(
            self._wanted,
            privileged=self._privileged,
            uses_ids=self._version >= IDS_FROM,
            now_s=self._broker.clock.monotonic(),
        )

    # -- waiting

    def attempt(self) -> Tried:
        """The answer, what it takes to read it from a disk or in turns, or itself, which is to wait."""
        reading = self.read_all()
        need = next(reading, _ENDED)
        if need is not _ENDED:
            return self._go_on(reading, need)
        return self.answer() if self.satisfied else self

    async def _go_on(self, reading: Pass, need: Need) -> Ended:
        await self._finish_pass(reading, need)
        return self.answer() if self.satisfied else self

    async def _finish_pass(self, reading: Pass, need: Need) -> None:
        loop = asyncio.get_running_loop()
        go_on: Callable[[], Need]
        while need is not _ENDED:
            try:
                if need is None:
                    await asyncio.sleep(0)
                    found = None
                else:
                    found = await loop.run_in_executor(self._broker.disk_readers, need.read)
            except LogError as error:  # of this partition alone: the pass goes on with the others
                go_on = partial(reading.throw, error)
            else:
                go_on = partial(reading.send, found)
            try:
                need = go_on()
            except StopIteration:
                need = _ENDED

    def begin(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        loop = asyncio.get_running_loop()
        self._missing = self._min_bytes - self._size
        # The marker of an open transaction makes more readable than its own bytes: look again.
        self._open_below = self._committed and any(
            limit < partition.log.high_watermark for partition, limit, _ in self._leaders
        )
        self._watched = [partition for partition, _, _ in self._leaders]
        self._watch(self._watched, self._grown)
        rest_s = max(0.0, self._deadline - self._broker.clock.monotonic())
        self._timer = loop.call_later(rest_s, self._over)
        if self._moved():
            self._over()

    def _grown(self, size: int) -> None:
        """So many bytes have become readable; 0: something else has changed."""
        self._missing -= size
        if self._missing <= 0 or size == 0 or (self._open_below and self._moved()):
            self._over()

    def _over(self) -> None:
        """Waiting has come to its end, once."""
        if self._timer is not None:
            wake = self._wake
            self.cancel()
            self._soon(wake)

    def _soon(self, wake: Callable[[], None]) -> None:
        self._broker.woken.add(wake)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            del self._wake
            self._unwatch(self._watched, self._grown)

    def _watch(self, watched: list[Partition], watcher: Watcher) -> None:
        for partition in watched:
            partition.watch(watcher)

    def _unwatch(self, watched: list[Partition], watcher: Watcher) -> None:
        for partition in watched:
            partition.unwatch(watcher)

    def _moved(self) -> bool:
        """Whether something changed between the pass and the start of watching."""
        return any(
            not self._may_read(partition) or limit != self._limit(partition.log)
            for partition, limit, _ in self._leaders
        )


Ended = FetchResponse | ClientFetch
Tried = Ended | Coroutine[Any, Any, Ended]
"""The answer, itself (it has to wait), or what it takes to tell."""
