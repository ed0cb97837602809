"""The order of the answers of one connection: which wait, which may be made beside them, which is the last.

Answers leave in the order of their requests. One that has to wait (`Pending`) holds up those behind it;
`blocked` says whether the next request may be served meanwhile. What is made ahead is held in memory until
its turn comes, so it is little (I11). A connection that has to end does so after a `last` answer, in its
turn: what was asked before that is answered. Plain state, knows neither sockets nor Kafka.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Final

from broker.server.outbox import Bytes, Region

Segments = Sequence[Bytes | Region]
MAX_WAITING: Final = 32
"""The most answers of one connection that may be waiting at once (requests that allow it, e.g. acks=all)."""
MADE_AHEAD: Final = 64 * 1024
"""Bytes of an answer behind one that waits; a larger one holds up what comes after it."""


class Pending:
    """An answer that needs waiting. `pipelined`: the next request may start meanwhile. `last`: the connection
    ends after it.

    `awaits` is what the coroutine is going to wait for, where that exists already.
    """

    __slots__ = ("abandoned_on_close", "awaits", "coroutine", "last", "pipelined")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Outcome],
        pipelined: bool = False,
        abandoned_on_close: bool = False,
        awaits: Awaitable[Any] | None = None,
        last: bool = False,
    ) -> None:
        self.coroutine = coroutine
        self.pipelined = pipelined
        self.abandoned_on_close = abandoned_on_close
        self.awaits = awaits
        self.last = last

    def drop(self) -> None:
        """End what was to be waited for: a task that is cancelled before its first step never gets there."""
        if isinstance(self.awaits, Coroutine):
            self.awaits.close()


class Deferred:
    """An answer that is tried for whenever there is news, by plain calls: waking a task costs more than that.

    The next request waits for it, and nobody waits for it once the client has gone. A handler may return one
    as well: its `attempt` returns what a handler returns.
    """

    __slots__ = ()

    def begin(self, wake: Callable[[], None]) -> None:
        """Wait. `wake` is called once, in a turn of its own, when it is time for an `attempt`.

        Whoever waits lets go of `wake` then, and when cancelled: it leads back to it, and what was read for
        the answer should be free once that is sent.
        """
        raise NotImplementedError

    def attempt(self) -> Any:
        """The outcome, or the object itself, which then begins to wait again."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Wait no more."""
        raise NotImplementedError


Outcome = Segments | Pending | Deferred | None
"""Of a request: the answer, how it comes to be, or none."""


class Answer:
    """The place of one answer in the order. `waits_for` is None once the answer is there."""

    __slots__ = ("abandoned_on_close", "last", "pipelined", "segments", "waits_for")

    def __init__(self, segments: Segments | None = None, *, last: bool = False) -> None:
        self.segments = segments
        self.waits_for: asyncio.Task[Outcome] | Deferred | None = None
        self.pipelined = segments is None or sum(map(len, segments)) <= MADE_AHEAD
        self.abandoned_on_close = False
        self.last = last

    def later(self, waits_for: asyncio.Task[Outcome] | Deferred, pending: Pending | None = None) -> None:
        """It is there when what it waits for says so."""
        self.waits_for = waits_for
        self.pipelined = pending is not None and pending.pipelined
        self.abandoned_on_close = pending is None or pending.abandoned_on_close
        self.last = pending is not None and pending.last


class AnswerOrder:
    """True while an answer waits. `ending`: one of them is the last."""

    __slots__ = ("_waiting", "ending")

    def __init__(self) -> None:
        self._waiting: deque[Answer] = deque()
        self.ending = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def blocked(self) -> bool:
        """Whether no other request may be served beside those whose answers wait."""
        waiting = self._waiting
        return self.ending or (bool(waiting) and (not waiting[-1].pipelined or len(waiting) >= MAX_WAITING))

    def add(self, answer: Answer) -> None:
        self._waiting.append(answer)

    def due(self) -> Iterator[Answer]:
        """Take out the answers that are there and wait for no other."""
        waiting = self._waiting
        while waiting and waiting[0].waits_for is None:
            yield waiting.popleft()

    def abandon(self) -> None:
        """Nobody is going to read what is left."""
        for answer in self._waiting:
            if answer.waits_for is not None and answer.abandoned_on_close:
                answer.waits_for.cancel()
        self._waiting.clear()
