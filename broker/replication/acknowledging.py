"""What one request waits for with acks=all: batches in several partitions, and the answer about each.

Every batch is lined up at its partition in the moment in which it was appended, so whatever happens to the
partition afterwards (a new term, another ISR) is about this batch too, and all are waited for together. What
the answers are is the partition's to say. (Kafka: `DelayedProduce`.)
"""

from __future__ import annotations

import asyncio
from collections import deque

from protocol.errors import ErrorCode


class Acknowledgements:
    """`codes` are in the order of `expect`; None where there is no answer yet."""

    __slots__ = ("_missing", "_over", "codes")

    def __init__(self) -> None:
        self.codes: list[ErrorCode | None] = []
        self._missing = 0
        self._over: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def over(self) -> bool:
        """Whether nobody waits any more, for whatever reason."""
        return not self._missing

    def expect(self) -> int:
        """One more answer to wait for; returns what to name it by."""
        self.codes.append(None)
        self._missing += 1
        return len(self.codes) - 1

    def settle(self, number: int, code: ErrorCode) -> None:
        """The first answer counts."""
        if self.codes[number] is not None:
            return
        self.codes[number] = code
        self._missing -= 1
        if not self._missing and self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def wait(self, timeout_s: float) -> list[ErrorCode]:
        """All answers; REQUEST_TIMED_OUT for those that have not come in time. One may wait, once."""
        if self._missing:
            loop = asyncio.get_running_loop()
            self._over = loop.create_future()
            timer = loop.call_later(max(0.0, timeout_s), self._time_out)
            try:
                await self._over
            finally:
                timer.cancel()
                self._time_out()  # also when the waiting itself was given up
        return [ErrorCode.REQUEST_TIMED_OUT if code is None else code for code in self.codes]

    def _time_out(self) -> None:
        for number in range(len(self.codes) if self._missing else 0):
            self.settle(number, ErrorCode.REQUEST_TIMED_OUT)


class Unacknowledged:
    """The answers that wait for one partition's high watermark, by the last offset of their batches."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Acknowledgements, int]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, last_offset: int, answers: Acknowledgements, number: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][1].over:  # was waited for long enough
            waiting.popleft()
        waiting.append((last_offset, answers, number))
        if len(waiting) > 1 and waiting[-2][0] > last_offset:  # a retry of what an earlier request appended
            self._waiting = deque(sorted(waiting, key=lambda waits: waits[0]))

    def settle_below(self, high_watermark: int, code: ErrorCode) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] < high_watermark:
            _, answers, number = waiting.popleft()
            answers.settle(number, code)

    def settle_all(self, code: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, answers, number in waiting:
            answers.settle(number, code)
