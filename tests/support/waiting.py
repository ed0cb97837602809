"""Waiting for what is to come, with a bound: never a sleep for its own sake."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(
    look: Callable[[], Awaitable[T]], wanted: Callable[[T], bool], *, bound_s: float = 60.0
) -> T:
    """What `look` finds, once it is what is wanted. Raises AssertionError with the last of it."""
    deadline = time.monotonic() + bound_s
    while True:
        found = await look()
        if wanted(found):
            return found
        assert time.monotonic() < deadline, f"after {bound_s} s it still is {found!r}"
        await asyncio.sleep(0.05)


def wait_until(condition: Callable[[], object], what: str, *, bound_s: float = 60.0) -> None:
    """The same without a loop. Raises AssertionError that says `what` did not come."""
    deadline = time.monotonic() + bound_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {bound_s} s"
        time.sleep(0.05)
