"""One log line for each thing that a peer did wrong, and not so many that they fill the disk.

Owns the limit: `PER_ADDRESS` lines a second for one address, so that a hostile client hides nobody else's
line, and `PER_SECOND` for all. Knows no sockets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.line_limit import LineLimit
from broker.server.context import ConnectionInfo

logger = logging.getLogger("isthmus.broker")

PER_ADDRESS = 5
PER_SECOND = 100
LONGEST = 1000
"""Characters of a reason: it may hold a name that a stranger has sent, of half a megabyte."""


class Offences:
    """`now` is monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._limit = LineLimit(now, per_key=PER_ADDRESS, per_second=PER_SECOND)

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
        if not self._limit.allows(host):
            return
        more = self._limit.left_out(host)
        text = str(why)
        if len(text) > LONGEST:
            text = f"{text[:LONGEST]}... ({len(text)} characters)"
        logger.log(
            level, "%s from %s on %s: %s%s", what, info.peer, info.listener, text, more, exc_info=error
        )
