"""Answers that are mostly the same: one of the same bytes as the last is not decoded once more.

The metadata of all topics, and the offsets of each group, asked for every second, take 8 us to decode for
each partition. (The ends of all partitions are hardly ever the same: heartbeats have come to one.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from protocol.codec.schema import Request, Response
from protocol.frames import decode_response

R = TypeVar("R", bound=Response)
M = TypeVar("M")
_CORRELATION_BYTES = 4


class SameAgain(Generic[R, M]):
    """Of one request that is always the same. What it gives is shared: nobody may change it."""

    def __init__(self) -> None:
        self._of: tuple[int, bytes] | None = None
        self._answer: R | None = None
        self._made: tuple[R, M] | None = None

    def read(self, frame: memoryview, request: type[Request[R]], version: int) -> R:
        """As `decode_response`, the answer alone."""
        of = version, bytes(frame[_CORRELATION_BYTES:])
        if self._answer is None or of != self._of:
            self._answer = decode_response(frame, request, version)[1]
            self._of = of
        return self._answer

    def made(self, answer: R, make: Callable[[R], M]) -> M:
        """What `make` makes of it: made once for an answer that is given again."""
        if self._made is None or self._made[0] is not answer:
            self._made = answer, make(answer)
        return self._made[1]
