"""Log lines that others can cause are limited, so that they fill no disk and hide no other line.

Owns the count: how many lines a second one key (an address, a group) may have, and all together; what was
left out of a key is told by its next line. Knows no logger.
"""

from __future__ import annotations

from collections.abc import Callable

REMEMBERED = 1000
"""Keys of which is known how much was left out."""


class LineLimit:
    """`now` is monotonic seconds. Of keys that were quiet for a second only what was left out is kept."""

    def __init__(self, now: Callable[[], float], *, per_key: int, per_second: int) -> None:
        self._now = now
        self._per_key = per_key
        self._per_second = per_second
        self._second = 0
        self._said: dict[str, int] = {}
        self._all_said = 0
        self._skipped: dict[str, int] = {}

    def allows(self, key: str) -> bool:
        """Whether there is room for a line about `key` now; if not it is counted."""
        second = int(self._now())
        if second != self._second:
            self._second, self._all_said = second, 0
            self._said.clear()
        said = self._said.get(key, 0)
        if said < self._per_key and self._all_said < self._per_second:
            self._said[key] = said + 1
            self._all_said += 1
            return True
        if key in self._skipped or len(self._skipped) < REMEMBERED:
            self._skipped[key] = self._skipped.get(key, 0) + 1
        return False

    def left_out(self, key: str) -> str:
        """What a line that is allowed ends with: empty, or how many before it were not."""
        skipped = self._skipped.pop(key, 0)
        return f" ({skipped} more like this were not logged)" if skipped else ""
