"""One direction of one connection over a line: what was sent, in order, and what has arrived by now.

Pure: the clock is passed in. The connection's opening and end are on their way like its bytes, so a cut line
holds them as well and the other side learns of neither. Must not know sockets (`relay`).
"""

from __future__ import annotations

import math
from collections import deque
from enum import Enum, auto

from topology.network.line import Line

_HEADER = 60
"""Bytes of a packet without data."""


class Mark(Enum):
    OPEN = auto()
    """The connection's handshake: SYN, or its answer."""
    END = auto()
    """No more data from there (FIN)."""
    RESET = auto()


Item = bytes | Mark


class Stream:
    def __init__(self, line: Line) -> None:
        self.line = line
        self.under_way = 0
        """Bytes sent and not yet arrived."""
        self._items: deque[tuple[float, Item]] = deque()
        self._last = 0.0

    def send(self, now: float, item: Item) -> None:
        size = _HEADER if isinstance(item, Mark) else len(item)
        self.under_way += 0 if isinstance(item, Mark) else size
        self._last = max(self._last, self.line.arrival(now, size))
        self._items.append((self._last, item))

    def arrived(self, now: float) -> list[Item]:
        """What has arrived by `now`, in order; it is no longer under way."""
        items: list[Item] = []
        while self._items and self._items[0][0] <= now:
            item = self._items.popleft()[1]
            if not isinstance(item, Mark):
                self.under_way -= len(item)
                self.line.carried += len(item)
            items.append(item)
        return items

    def next_arrival(self) -> float | None:
        """When to look again; None when nothing is under way or the line is cut."""
        if not self._items or self._items[0][0] == math.inf:
            return None
        return self._items[0][0]

    def full(self) -> bool:
        """Whether TCP would send no more until something arrives."""
        return self.under_way >= self.line.window()

    def replan(self, now: float) -> None:
        """The line was changed, cut or healed: everything under way starts from its beginning now."""
        items, self._items = self._items, deque()
        self.under_way, self._last = 0, 0.0
        for _, item in items:
            self.send(now, item)
