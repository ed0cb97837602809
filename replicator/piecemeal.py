"""Asking a cluster about many things of which some may be gone: one deleted topic must not hide all others.

Owns taking a refused question apart until only the bad items are left, with their errors (DESIGN §4, I10).
Knows nothing about what is asked. A cluster that does not answer at all is an error for all, not taken apart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from protocol.errors import KafkaError

K = TypeVar("K")
V = TypeVar("V")


async def piecemeal(
    ask: Callable[[list[K]], Awaitable[Mapping[K, V]]], items: Collection[K]
) -> tuple[dict[K, V], dict[K, KafkaError]]:
    """Answers for the items that have one, and the error of each other one; halves what is refused, so that
    one bad item among n costs log n requests. Raises what is not a KafkaError.
    """
    answers: dict[K, V] = {}
    refused: dict[K, KafkaError] = {}
    parts = [list(items)] if items else []
    while parts:
        part = parts.pop()
        try:
            answers.update(await ask(part))
        except KafkaError as error:
            if len(part) == 1:
                refused[part[0]] = error
            else:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
    return answers, refused
