"""A cluster that cannot be asked for its leaders: said once for each kind of trouble, and when it is over.

Look-ups are tried again every few seconds: an outage of an hour would fill the log with one line.
"""

from __future__ import annotations

import logging

from protocol.errors import ProtocolError

_log = logging.getLogger("isthmus.transfer")


class Away:
    """Of `side`, source or target."""

    def __init__(self, side: str) -> None:
        self._side = side
        self._said: type[ProtocolError] | None = None

    def failed(self, error: ProtocolError) -> None:
        """The look-up was in vain."""
        if self._said is not type(error):
            self._said = type(error)
            _log.warning("%s metadata: %s", self._side, error)

    def answers(self) -> None:
        """The look-up went through."""
        if self._said is not None:
            self._said = None
            _log.info("%s metadata: it answers again", self._side)
