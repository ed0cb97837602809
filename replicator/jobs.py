"""The periodic jobs of a link: what a cluster cannot do now is said once and tried again.

Owns trying, waiting and remembering what is wrong now (`troubles`, by job). It must not know what the jobs
do. A client that meets another cluster than before (`WrongClusterError`) ends the link: no waiting helps.

What a job costs grows with the number of partitions, topics or groups. So that looking after them leaves the
processor to the copying, each rests many times as long as it has worked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, TypeVar, cast

from protocol.client import WrongClusterError
from protocol.errors import ProtocolError
from replicator.metrics import LinkMetrics
from replicator.reach import set_within
from replicator.troubles import Troubles

_log = logging.getLogger("isthmus.replicator")

V = TypeVar("V")
Job = Callable[[], Awaitable[object]]

_TRY_AGAIN_S = 1.0
_FAILED_AGAIN_S = 5.0
_RESTS = 50
_LONGEST_REST_S = 5.0


class Worked(Generic[V]):
    """Awaits a job. `held_s` is how long its own turns have held up everything else: others' turns meanwhile
    and waiting for answers do not count, being short of a processor does. Tasks of its own count where they
    await a `Worked` themselves.
    """

    def __init__(self, job: Callable[[], Awaitable[V]]) -> None:
        self._job = job
        self.held_s = 0.0

    def rest_s(self, most_s: float) -> float:
        """Before it may work again."""
        return min(_RESTS * self.held_s, most_s)

    def __await__(self) -> Generator[Any, Any, V]:
        whole = _whole.get()
        if whole is None:
            _whole.set(self)
        try:
            return (yield from self._timed(whole))
        finally:
            if whole is None:
                _whole.set(None)

    def _timed(self, whole: Worked[Any] | None) -> Generator[Any, Any, V]:
        turns = self._job().__await__()
        turn: Callable[[], Any] = partial(turns.send, None)
        while True:
            began = time.perf_counter()
            try:
                waits_for = turn()
            except StopIteration as done:
                return cast("V", done.value)
            finally:
                took = time.perf_counter() - began
                self.held_s += took
                if whole is not None:
                    whole.held_s += took
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 (cancelled, most of all)
                turn = partial(turns.throw, error)
            else:
                turn = partial(turns.send, None)


_whole: ContextVar[Worked[Any] | None] = ContextVar("_whole", default=None)
"""The job that this task works for."""


class Jobs:
    """Jobs of the link `name`."""

    def __init__(self, name: str, metrics: LinkMetrics) -> None:
        self._name = name
        self._metrics = metrics
        self.troubles = Troubles()

    async def attempt(self, what: str, job: Job) -> bool:
        """Whether the job went through. What a cluster could not do now is tried again by the caller."""
        try:
            await job()
        except WrongClusterError:
            raise
        except ProtocolError as error:
            if self.troubles.note(what, error):
                _log.warning("%s: %s: %s", self._name, what, error)
            self._metrics.errors.labels(self._name, what).inc()
            return False
        if self.troubles.pop(what, None) is not None:
            _log.info("%s: %s works again", self._name, what)
        return True

    async def until_done(self, what: str, job: Job) -> None:
        """Tries until it went through once."""
        while not await self.attempt(what, job):  # noqa: ASYNC110 (nobody could set an event)
            await asyncio.sleep(_TRY_AGAIN_S)

    async def every(
        self,
        what: str,
        interval_s: Callable[[], float],
        job: Job,
        poke: asyncio.Event | None = None,
        *,
        longest_rest_s: float = _LONGEST_REST_S,
    ) -> None:
        """Runs it for ever, at once when poked; the interval is asked for each time, and longer for what has
        much to do. What failed is tried again within seconds, however long that is."""
        never = asyncio.Event()
        while True:
            worked = Worked(job)
            done = await self.attempt(what, lambda: worked)  # noqa: B023 (called at once)
            pause_s = interval_s() if done else min(interval_s(), _FAILED_AGAIN_S)
            rest_s = worked.rest_s(longest_rest_s)
            await asyncio.sleep(rest_s)
            await set_within(poke or never, max(pause_s - rest_s, 0.0))
            if poke is not None:
                poke.clear()
