"""What goes wrong at the moment: in words, with what to do about it, and since when.

Pure but for the clock that is passed in. Words may change while a trouble lasts; its beginning does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from protocol.errors import ProtocolError


def now_ms() -> int:
    """Of this machine's clock."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Trouble:
    """`to_do` is empty where nobody knows; `since_ms` is a time of this machine's clock."""

    what: str
    to_do: str
    since_ms: int

    def __str__(self) -> str:
        return f"{self.what}; {self.to_do}" if self.to_do else self.what


class Troubles(dict[str, Trouble]):
    """By what they concern."""

    def __init__(self, clock_ms: Callable[[], int] = now_ms) -> None:
        super().__init__()
        self._clock_ms = clock_ms

    def note(self, about: str, error: Exception | str) -> bool:
        """Whether it is a new trouble, or one in other words."""
        known = self.get(about)
        since_ms = known.since_ms if known is not None else self._clock_ms()
        what, to_do = (error.what, error.to_do) if isinstance(error, ProtocolError) else (str(error), "")
        self[about] = found = Trouble(what, to_do, since_ms)
        return known is None or str(known) != str(found)

    @property
    def texts(self) -> dict[str, str]:
        """For people."""
        return {about: str(trouble) for about, trouble in self.items()}

    @property
    def since(self) -> dict[str, int]:
        """When each began (ms)."""
        return {about: trouble.since_ms for about, trouble in self.items()}
