"""Waiting for what a JVM or a broker will do: a condition with a bound, never a time."""

import time
from collections.abc import Callable
from typing import TypeVar

BOUND_S = 180.0
T = TypeVar("T")


def until(what: str, look: Callable[[], T], bound_s: float = BOUND_S) -> T:
    """The first true answer of `look`. AssertionError when there is none within the bound."""
    deadline = time.monotonic() + bound_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {bound_s:.0f} s: {what}")
        time.sleep(0.1)
