"""The token of one cluster's client: shared by its connections, asked for anew before it ends.

Owns when that is (Kafka: `ExpiringCredentialRefreshingLogin`), that one asks for all, and that a source that
just failed is spared. While a token holds, trouble with the source is a line in the log and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from protocol.client.errors import TokenError
from protocol.client.oauth.bearer import Token
from protocol.client.oauth.sources import FileToken, Source

T = TypeVar("T")

_log = logging.getLogger("isthmus.protocol")

_LOOK: Final = "look at it and at its settings; it is asked again"
_BURST_S: Final = 1.0
_SHARE: Final = 0.5
"""Of the time that a token still holds, trouble with the next one may take so much."""


@dataclass(frozen=True, slots=True)
class Refreshing:
    """Kafka's `sasl.login.refresh.*` and `sasl.login.retry.backoff.*`, in seconds and shares."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: float = 60.0
    buffer_s: float = 300.0
    backoff_s: float = 0.1
    longest_backoff_s: float = 10.0

    def due(self, token: Token, now: float, chance: float) -> float:
        """From when on another token is wanted (seconds since 1970); `chance` is between 0 and 1.

        One whose end is not known, or is over by this machine's clock, does for a burst of connections."""
        if token.ends is None:
            return now + _BURST_S
        begins = now if token.begins is None else min(token.begins, now)
        share = self.window_factor + self.window_jitter * chance
        wanted = begins + (token.ends - begins) * share
        if self.min_period_s + self.buffer_s < token.ends - now:
            wanted = max(min(wanted, token.ends - self.buffer_s), now + self.min_period_s)
        return max(min(wanted, token.ends), now + _BURST_S)

    def pause(self, failures: int) -> float:
        return min(self.longest_backoff_s, self.backoff_s * 2.0 ** min(failures - 1, 30))


class Tokens:
    """`current` is for an event loop, `ask` for a thread that may wait. Files are read each time."""

    def __init__(self, source: Source, refreshing: Refreshing | None = None, place: str = "") -> None:
        """`place` says where tokens come from, for errors."""
        self.ask = source
        self.place = place
        self._refreshing = refreshing or Refreshing()
        self.keeps = not isinstance(source, FileToken)
        self._kept: Token | None = None
        self._accepted: Token | None = None
        self._due = 0.0
        self._asking = asyncio.Lock()
        self._failures = 0
        self._spared_until = 0.0
        self._failed: TokenError | None = None

    def __repr__(self) -> str:
        return f"Tokens({self.place!r})"

    async def current(self, host: str) -> Token:
        """The one to show to the broker at `host`. Raises TokenError."""
        if self._is_fresh():
            return self._held()
        async with self._asking:
            if self._is_fresh():  # who was before us in the queue has got it
                return self._held()
            left_s = self._left_s()
            if self._failed is not None and time.monotonic() < self._spared_until:
                if left_s > 0:
                    return self._held()
                raise self._failed.again()
            try:
                async with asyncio.timeout(left_s * _SHARE if left_s > 0 else None):
                    token = await in_thread(lambda: self.ask(host))
            except TokenError as error:
                return self._without(error)
            except TimeoutError:
                return self._without(TokenError(f"no token from {self.place}: it is slow", _LOOK))
            except Exception as error:  # noqa: BLE001 (a library's; its words may hold what is secret)
                name = type(error).__name__
                return self._without(TokenError(f"no token from {self.place}: {name}", _LOOK))
            self._failed, self._failures = None, 0
            now = time.time()
            self._kept = token if self.keeps else None
            self._due = self._refreshing.due(token, now, random.random())
            return token

    def accepted(self, token: Token) -> None:
        """A broker has taken it."""
        self._accepted = token

    def refused(self, token: Token) -> bool:
        """A broker has not taken it: it is shown to none again. Whether one has taken it before, so that a
        new one may do."""
        if self._kept == token:
            self._kept = None
        return self._accepted == token

    def _is_fresh(self) -> bool:
        return self._kept is not None and time.time() < self._due

    def _held(self) -> Token:
        assert self._kept is not None
        return self._kept

    def _left_s(self) -> float:
        """For how long the kept one still holds."""
        if self._kept is None or self._kept.ends is None:
            return 0.0
        return self._kept.ends - time.time()

    def _without(self, error: TokenError) -> Token:
        """The kept one, which still holds, and a warning. Raises the error where there is none."""
        self._failures += 1
        self._failed = error
        self._spared_until = time.monotonic() + self._refreshing.pause(self._failures)
        left_s = self._left_s()
        if left_s <= 0:
            raise error
        _log.warning("%s; the token at hand holds for another %.0f s", error, left_s)
        return self._held()


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` gives, in a thread that nobody waits for at the end of the process: a server that is silent
    would hold up its end."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():  # nobody waits any more
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, failed = None, None
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 (it is the waiting task's)
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=run, name="isthmus-token", daemon=True).start()
    return await result
