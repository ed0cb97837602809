"""Long requests in turns: no request may keep the event loop from everybody else (invariant I11).

For handlers whose work grows with an array of the request. Knows nothing about what is done with the items.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

ITEMS_IN_A_TURN: Final = 500
"""A few milliseconds at the cost of the dearest handlers, some 7 microseconds an item."""


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items one after the other; others get their turn after every `ITEMS_IN_A_TURN` of them."""
    for number, item in enumerate(items, 1):
        yield item
        if number % ITEMS_IN_A_TURN == 0:
            await asyncio.sleep(0)
