"""One record as the rest of the code sees it, with absolute offset and timestamp."""

from dataclasses import dataclass, field
from typing import Final

Header = tuple[str, bytes | None]

NAME_ERRORS: Final = "surrogateescape"
"""How names of headers are decoded and encoded: brokers and Java's clients take any bytes for one, and what
is read and built again keeps them."""


@dataclass(slots=True)
class Record:
    """Null and empty are different things in `key`, `value` and a header's value, and stay so.

    `timestamp` is in ms since the epoch, -1 for none. Header keys may repeat; their order is kept.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header] = field(default_factory=list)
