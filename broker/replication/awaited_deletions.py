"""Who waits at a leader until the replicas have let go of deleted records (DeleteRecords, KIP-107)."""

import asyncio

from protocol.errors import ErrorCode

Answer = asyncio.Future[ErrorCode]


class AwaitedDeletions:
    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Answer]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int) -> Answer:
        """Somebody will `wait` until no replica has anything below `offset`."""
        answer: Answer = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, answer))
        return answer

    async def wait(self, answer: Answer, timeout_s: float) -> ErrorCode:
        """What it was settled with, or REQUEST_TIMED_OUT."""
        timer = asyncio.get_running_loop().call_later(
            max(0.0, timeout_s), _settle, answer, ErrorCode.REQUEST_TIMED_OUT
        )
        try:
            return await answer
        finally:
            timer.cancel()
            self._waiting = [each for each in self._waiting if each[1] is not answer]

    def settle_up_to(self, low_watermark: int) -> None:
        """Every replica that may be elected begins at `low_watermark` or behind."""
        for offset, answer in self._waiting:
            if offset <= low_watermark:
                _settle(answer, ErrorCode.NONE)

    def settle_all(self, code: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, []
        for _, answer in waiting:
            _settle(answer, code)


def _settle(answer: Answer, code: ErrorCode) -> None:
    if not answer.done():
        answer.set_result(code)
