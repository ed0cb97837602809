"""One question for all who ask at the same moment.

A link that begins with thousands of partitions asks the same small question about each. Owns gathering
those into one request; what is asked, and of whom, is the caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Together(Generic[K, V]):
    """`ask` gets all items that were wanted since it was called last, and answers each with a value or an
    error; what it raises, all of them get. It may run several times at once.
    """

    def __init__(self, ask: Callable[[list[K]], Awaitable[Mapping[K, V | BaseException]]]) -> None:
        self._ask = ask
        self._wanted: dict[K, asyncio.Future[V]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    async def one(self, item: K) -> V:
        """The answer about `item`. Raises its error; KeyError when it was left out of the answers."""
        answer = self._wanted.get(item)
        if answer is None:
            answer = self._wanted[item] = asyncio.get_running_loop().create_future()
            if len(self._wanted) == 1:
                task = asyncio.create_task(self._ask_all())
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)
        return await asyncio.shield(answer)  # others may wait for the same

    async def _ask_all(self) -> None:
        await asyncio.sleep(0)  # whoever is woken by the same answer comes along
        wanted, self._wanted = self._wanted, {}
        answers: Mapping[K, V | BaseException]
        try:
            answers = await self._ask(list(wanted))
        except Exception as error:  # noqa: BLE001 (whoever asked gets it)
            answers = dict.fromkeys(wanted, error)
        for item, answer in wanted.items():
            found = answers.get(item, KeyError(item))
            if isinstance(found, BaseException):
                answer.set_exception(found)
                answer.exception()  # who asked may be gone, cancelled meanwhile
            else:
                answer.set_result(found)
