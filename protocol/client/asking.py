"""Asking any broker what each of them can answer, without waiting for one that is silent.

Owns in which order and when the next one is asked too. What is asked, and whom there is, is `routing`'s.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, TypeVar

from protocol.client.connection import Connection
from protocol.client.errors import (
    ClientError,
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    TokenError,
    TurnedAwayError,
)
from protocol.client.pool import Address, ConnectionPool

T = TypeVar("T")

MAIN_LANE: Final = ""
_PATIENCE_S: Final = 1.0
"""So long one broker is waited for alone."""


async def first_answer(
    pool: ConnectionPool, addresses: Iterable[Address], ask: Callable[[Connection], Awaitable[T]]
) -> T:
    """What the first broker says that answers; the next one is asked when one fails or is silent a second.

    Raises what `ask` raises; `ConnectError` if nobody can be reached; else why the last one did not answer.
    """
    left = iter(addresses)
    asked: set[asyncio.Task[T]] = set()
    failed: list[ClientError] = []

    async def ask_at(address: Address) -> T:
        return await ask(await pool.get(address, MAIN_LANE))

    try:
        while True:
            address = next(left, None)
            if address is not None:
                asked.add(asyncio.create_task(ask_at(address)))
            elif not asked:
                silent = [error for error in failed if not isinstance(error, ConnectError)]
                raise silent[-1] if silent else nobody_reached(failed)
            patience = None if address is None else _PATIENCE_S
            done, asked = await asyncio.wait(asked, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            answers = []
            for task in done:
                failure = task.exception()  # of each: several may end at once
                refused = isinstance(failure, TokenError) and not failure.curable  # so it is for all others
                kinds = ConnectError | ConnectionLostError | RequestTimeoutError
                if isinstance(failure, kinds) and not refused:
                    failed.append(failure)
                else:
                    answers.append(task)
            if answers:
                return answers[0].result()
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


def nobody_reached(failed: Collection[ClientError]) -> ConnectError:
    """`TurnedAwayError` where somebody was there; what is wrong with tokens is so for all of them."""
    tokens = next((error for error in failed if isinstance(error, TokenError)), None)
    if tokens is not None:
        return tokens
    somebody = any(isinstance(error, TurnedAwayError) for error in failed)
    kind = TurnedAwayError if somebody else ConnectError
    return kind(f"no broker can be reached: {'; '.join(map(str, failed))}")
