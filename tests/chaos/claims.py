"""Processes that belong to one fault at a time, so that two do not tell one process opposite things."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class LeftOut(Exception):
    """This fault cannot be had now, or not on this machine; the message says why."""


class Claims:
    """By name of the process."""

    def __init__(self, bound_s: float) -> None:
        self._bound_s = bound_s
        self._claimed: set[str] = set()
        self._changed = threading.Condition()

    @contextmanager
    def claim(self, wanted: Iterable[str]) -> Iterator[None]:
        """These processes are for one fault alone. Raises LeftOut."""
        names = set(wanted)
        with self._changed:
            if not self._changed.wait_for(lambda: not names & self._claimed, self._bound_s):
                raise LeftOut(f"{sorted(names)} stay broken by another fault")
            self._claimed |= names
        try:
            yield
        finally:
            with self._changed:
                self._claimed -= names
                self._changed.notify_all()
