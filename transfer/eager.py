"""Tasks whose first step is taken at once, as Python 3.12's eager tasks do.

A task begins in the next turn of the event loop. Where a coroutine only hands something on and then waits,
that turn is most of what it costs, and two of them are a third of the time that a record spends in a link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def begin(work: Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
    """What `work` gives, as a future, also where it fails at once; a coroutine is begun (`start`)."""
    try:
        given = work()
    except Exception as error:  # noqa: BLE001 - it is for who waits
        failed: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        return failed
    if isinstance(given, asyncio.Future):
        return given
    return start(given) if isinstance(given, Coroutine) else asyncio.ensure_future(given)


def start(work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Run `work` up to where it first waits; what is left is a task, and what is done already a future.

    Its first step belongs to no task of its own, so it must not use `asyncio.timeout` or `current_task`.
    """
    loop = asyncio.get_running_loop()
    try:
        first = work.send(None)
    except StopIteration as end:
        done: asyncio.Future[T] = loop.create_future()
        done.set_result(end.value)
        return done
    except asyncio.CancelledError:  # of what it waits for; nobody can have cancelled the caller meanwhile
        gone: asyncio.Future[T] = loop.create_future()
        gone.cancel()
        return gone
    except Exception as error:  # noqa: BLE001 - it is for who waits, as a task's would be
        failed: asyncio.Future[T] = loop.create_future()
        failed.set_exception(error)
        return failed
    return loop.create_task(_Begun(work, first))


class _Begun(Coroutine[Any, Any, T]):
    """A coroutine that waits for `first` already: a future, or None for a turn."""

    __slots__ = ("_first", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], first: Any) -> None:
        self._work = work
        self._first = first
        if first is not None:
            first._asyncio_future_blocking = False  # until a task waits for it: others may as well

    def send(self, value: Any) -> Any:
        work = self._work
        first, self._first = self._first, self
        if first is self:
            return work.send(value)
        if first is not None:
            first._asyncio_future_blocking = True
        return first

    def throw(self, *failure: Any) -> Any:
        first, self._first = self._first, self
        # Cancelled before its first turn as a task: what it waits for is cancelled, and its end waited for,
        # as it would be later.
        if first is not self and first is not None and first.cancel():
            first._asyncio_future_blocking = True
            return first
        return self._work.throw(*failure)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        raise NotImplementedError("a task runs it")
