"""One log line for each thing that a peer did wrong, and not so many that they fill the disk.

Owns the limit: `PER_ADDRESS` lines a second for one address, so that a hostile client hides nobody else's
line, and `PER_SECOND` for all. What was left out of an address is counted in its next line. Remembers of
addresses that were quiet for a second no more than that, and of `REMEMBERED` at most. Knows no sockets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.server.context import ConnectionInfo

logger = logging.getLogger("isthmus.broker")

PER_ADDRESS = 5
PER_SECOND = 100
REMEMBERED = 1000
LONGEST = 1000
"""Characters of a reason: it may hold a name that a stranger has sent, of half a megabyte."""


class Offences:
    """`now` is monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._second = 0
        self._said: dict[str, int] = {}
        self._all_said = 0
        self._skipped: dict[str, int] = {}

    def say(
        self,
        what: str,
        info: ConnectionInfo,
        why: object,
        *,
        level: int = logging.WARNING,
        error: BaseException | None = None,
    ) -> None:
        """Log "`what` from ADDRESS on LISTENER: `why`", with the traceback of `error` if it is given."""
        host = info.peer_host
        if not self._may_say(host):
            return
        skipped = self._skipped.pop(host, 0)
        more = f" ({skipped} more like this were not logged)" if skipped else ""
        text = str(why)
        if len(text) > LONGEST:
            text = f"{text[:LONGEST]}... ({len(text)} characters)"
        logger.log(
            level, "%s from %s on %s: %s%s", what, info.peer, info.listener, text, more, exc_info=error
        )

    def _may_say(self, address: str) -> bool:
        """Whether an offence from this address gets a line; if not it is counted."""
        second = int(self._now())
        if second != self._second:
            self._second, self._all_said = second, 0
            self._said.clear()
        said = self._said.get(address, 0)
        if said < PER_ADDRESS and self._all_said < PER_SECOND:
            self._said[address] = said + 1
            self._all_said += 1
            return True
        if address in self._skipped or len(self._skipped) < REMEMBERED:
            self._skipped[address] = self._skipped.get(address, 0) + 1
        return False
