"""Long requests in turns: no request may keep the event loop from everybody else (invariant I11).

For handlers whose work grows with an array of the request; others are held to `MAX_ITEMS` by the dispatcher.
Knows nothing about what is done with the items.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final, TypeVar

from protocol.codec.schema import Struct

T = TypeVar("T")

ITEMS_IN_A_TURN: Final = 500
"""A few milliseconds at the cost of the dearest handlers, some 7 microseconds an item."""
MAX_ITEMS: Final = 20_000
"""Array items in one request to an API that does not work in turns."""
MANY_ITEMS: Final = 100_000
"""The same where little is done for each: what a large group or consumer reads."""
CALLS_IN_A_TURN: Final = 64
"""Of `CallsInTurns`: some 3 milliseconds of attempts to answer a fetch."""
NO_LIMIT: Final = 2**31
"""For handlers that work in turns: the codec's own limit holds."""


class Turns:
    """Counts what one request has had done since others had their turn, in loops within loops too."""

    def __init__(self) -> None:
        self._done = 0

    async def of(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items one after the other; others get their turn after every `ITEMS_IN_A_TURN` of them."""
        for item in items:
            yield item
            self._done += 1
            if self._done >= ITEMS_IN_A_TURN:
                self._done = 0
                await asyncio.sleep(0)


class CallsInTurns:
    """`call_soon` for what may be due a thousand times at once: all readers that wait at one partition."""

    def __init__(self) -> None:
        self._due: deque[Callable[[], None]] = deque()
        self._called = False

    def add(self, call: Callable[[], None]) -> None:
        """Make this call in a turn of its own, after those that were added before."""
        self._due.append(call)
        if not self._called:
            self._called = True
            asyncio.get_running_loop().call_soon(self._make)

    def _make(self) -> None:
        due = self._due
        try:
            for _ in range(min(len(due), CALLS_IN_A_TURN)):
                due.popleft()()
        finally:  # one that fails takes no other with it
            self._called = bool(due)
            if due:
                asyncio.get_running_loop().call_soon(self._make)


def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """`Turns.of` for a request with one loop; a loop inside it needs the same `Turns`."""
    return Turns().of(items)


def is_long(counts: Iterable[int]) -> bool:
    """Whether so many items are too many for one turn."""
    return sum(counts) > ITEMS_IN_A_TURN


def count_items(message: Struct) -> int:
    """How many array items a message holds, at every level."""
    total = 0
    for field in type(message).FIELDS:
        if not field.kind.startswith("[]"):
            continue
        value: Any = getattr(message, field.name)
        if value:
            total += len(value)
            if field.kind == "[]struct":
                total += sum(map(count_items, value))
    return total
