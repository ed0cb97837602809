"""A port that a command cannot listen on: where, why in the system's words, and what to do."""

from __future__ import annotations

import errno
import os
import socket
from typing import Final, NoReturn

from isthmus.output import fail

_OF_THE_PORT: Final = {
    errno.EADDRINUSE: "take another port by {} (0: a free one), or stop who listens there",
    errno.EACCES: "take a port from 1024 on by {} (0: a free one)",
}


def cannot_listen(what: str, error: OSError, option: str, otherwise: str = "") -> NoReturn:
    """Ends the command. `what` cannot be done; `option` says which port; `otherwise`: what to do where it is
    not the port's fault."""
    # socket.create_server adds words of its own to the system's; a name that is not found has no errno of it
    number = None if isinstance(error, socket.gaierror) else error.errno
    reason = os.strerror(number) if number else error.strerror or str(error)
    to_do = _OF_THE_PORT[number].format(option) if number in _OF_THE_PORT else otherwise
    fail(f"{what}: {reason}" + (f"; {to_do}" if to_do else ""))
