"""Says once that something of a log directory does not work, and once that it works again.

Periodic work meets a full disk every few seconds and in every partition; an operator needs one line about it.
Plain state; must not know what the work is.
"""

import logging

log = logging.getLogger("isthmus.broker.log")


class Complaints:
    def __init__(self) -> None:
        self._open: set[tuple[str, str]] = set()

    def failed(self, path: str, what: str, reason: object) -> None:
        """`what` failed in the directory: a line, unless that has been said since it last worked."""
        if (path, what) in self._open:
            log.debug("%s: %s failed: %s", path, what, reason)
            return
        self._open.add((path, what))
        log.warning("%s: %s failed: %s; this is not said again until it works", path, what, reason)

    def worked(self, path: str, what: str) -> None:
        if (path, what) in self._open:
            self._open.discard((path, what))
            log.info("%s: %s works again", path, what)
