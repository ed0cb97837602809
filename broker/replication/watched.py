"""Who waits at a replica for more: readers for what is readable, followers for what is appended.

Owns their callbacks and the sessions that look at nothing before they are told. When there is more is the
partition's to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar

# Called with the number of bytes that became readable; 0 says that leadership changed: look again.
Watcher = Callable[[int], None]
P = TypeVar("P", contravariant=True)


class RestingSession(Protocol[P]):
    """A follower's fetch session that does not look at a partition before it hears of it."""

    def moved(self, partition: P, size: int | None) -> None:
        """`size` as a `Watcher` gets it; None: there is news that can wait for the next fetch."""


class Watched:
    __slots__ = ("_alone", "_at_rest", "_end_watchers", "_watchers")

    def __init__(self) -> None:
        self._alone = False
        """This broker is the whole ISR, and nobody is about to join: what is appended is readable."""
        self._watchers: dict[Watcher, None] = {}
        self._end_watchers: dict[Watcher, None] = {}
        self._at_rest: dict[RestingSession[Self], None] = {}

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` when more becomes readable, or leadership changes."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def watch_end(self, watcher: Watcher) -> None:
        """Call `watcher` when more is appended, readable or not, or leadership changes: for followers."""
        self._end_watchers[watcher] = None

    def unwatch_end(self, watcher: Watcher) -> None:
        self._end_watchers.pop(watcher, None)

    def rest(self, session: RestingSession[Self]) -> None:
        """Tell this session once, when something is appended or changes here (also what `watch_end` is not
        told: the high watermark, the ISR).
        """
        self._at_rest[session] = None

    def end_rest(self, session: RestingSession[Self]) -> None:
        self._at_rest.pop(session, None)

    def wake(self, size: int) -> None:
        for watcher in list(self._watchers):
            watcher(size)
        if (self._end_watchers or self._at_rest) and (self._alone or size == 0):
            self._wake_followers(size)

    def _wake_followers(self, size: int) -> None:
        for watcher in list(self._end_watchers):
            watcher(size)
        if self._at_rest:
            self._end_rests(size)

    def _end_rests(self: Self, size: int | None) -> None:
        at_rest, self._at_rest = self._at_rest, {}
        for session in at_rest:
            session.moved(self, size)
