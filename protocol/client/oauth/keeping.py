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
_PATIENCE_S: Final = 1.0
"""So long a new connection waits for the next token while the one at hand holds."""


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
        self.keeps = not isinstance(source, FileToken)
        self._refreshing = refreshing or Refreshing()
        self._kept: Token | None = None
        self._accepted: Token | None = None
        self._due = 0.0
        self._asking: asyncio.Future[Token] | None = None
        self._failures = 0
        self._spared_until = 0.0
        self._failed: TokenError | None = None

    def __repr__(self) -> str:
        return f"Tokens({self.place!r})"

    async def current(self, host: str) -> Token:
        """The one to show to the broker at `host`. Raises TokenError."""
        kept = self._kept
        if kept is not None and time.time() < self._due:
            return kept
        spared = self._failed if time.monotonic() < self._spared_until else None
        if kept is not None and (left_s := self._left_s()) > 0:
            if spared is None:  # an answer that takes longer is for the next connection
                await asyncio.wait({self._asked(host)}, timeout=min(_PATIENCE_S, left_s / 2))
            return self._kept or kept
        if spared is not None:
            raise spared.again()
        try:
            return await asyncio.shield(self._asked(host))
        except TokenError as error:
            raise error.again() from None

    def accepted(self, token: Token) -> None:
        """A broker has taken it."""
        self._accepted = token

    def refused(self, token: Token) -> bool:
        """A broker has not taken it: it is shown to none again. Whether one has taken it before, so that a
        new one may do."""
        if self._kept == token:
            self._kept = None
        return self._accepted == token

    def _asked(self, host: str) -> asyncio.Future[Token]:
        """One asks for all."""
        if self._asking is None:
            self._asking = in_thread(lambda: self._answer(host))
            self._asking.add_done_callback(self._answered)
        return self._asking

    def _answer(self, host: str) -> Token:
        try:
            return self.ask(host)
        except TokenError:
            raise
        except Exception as error:  # noqa: BLE001 (a library's; its words may hold what is secret)
            raise TokenError(f"no token from {self.place}: {type(error).__name__}", _LOOK) from None

    def _answered(self, asking: asyncio.Future[Token]) -> None:
        self._asking = None
        error = asking.exception()
        if error is None:
            self._failed, self._failures = None, 0
            token = asking.result()
            self._kept = token if self.keeps else None
            self._due = self._refreshing.due(token, time.time(), random.random())
        elif isinstance(error, TokenError):
            self._failures += 1
            self._failed = error
            self._spared_until = time.monotonic() + self._refreshing.pause(self._failures)
            if (left_s := self._left_s()) > 0:
                _log.warning("%s; the token at hand holds for another %.0f s", error, left_s)

    def _left_s(self) -> float:
        """For how long the kept one still holds."""
        if self._kept is None or self._kept.ends is None:
            return 0.0
        return self._kept.ends - time.time()


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """What `work` gives, in a thread that nobody waits for at the end of the process: a server that is silent
    would hold up its end."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, failed = None, None
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 (it is for whoever waits)
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=run, name="isthmus-token", daemon=True).start()
    return result
