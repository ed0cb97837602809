"""Why something could not be reached over the network, in the same words whoever was asked.

Owns the words for errors of the operating system; what to do about them is `doors`' to say.
"""

from __future__ import annotations

import os
import re
import socket
import ssl as tls
from typing import Final

_ERRNO: Final = re.compile(r"\[Errno (\d+)\]")


def reason(error: OSError, host: str) -> str:
    """The same words whichever event loop, and however many addresses the name has (asyncio puts the attempts
    at all of them into one text)."""
    if isinstance(error, socket.gaierror):
        return f"unknown host {host} ({error.strerror})"
    if isinstance(error, tls.SSLError):
        return error.strerror or str(error)
    numbers = [error.errno] if error.errno else [int(number) for number in _ERRNO.findall(str(error))]
    words = [os.strerror(number) for number in dict.fromkeys(numbers)]
    return "; ".join(words) or str(error) or "the connection was closed"
