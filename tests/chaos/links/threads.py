"""Clients as threads: each goes on whatever happens, writers end before the others, and one that hangs is
left behind (docs/status.md).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaException


@dataclass
class Threads:
    of: str = ""
    """Whose they are, in the names of threads."""
    writing: threading.Event = field(default_factory=threading.Event)
    """Set: writers stop."""
    ended: threading.Event = field(default_factory=threading.Event)
    stuck: list[str] = field(default_factory=list)
    _writers: list[threading.Thread] = field(default_factory=list)
    _others: list[threading.Thread] = field(default_factory=list)

    def writer(self, name: str, work: Callable[..., None], *arguments: object) -> None:
        """`work` with its name first; begun again until writers stop. So is one that broke."""
        self._writers.append(self._going_on(self.writing, name, work, arguments))

    def other(self, name: str, work: Callable[..., None], *arguments: object) -> None:
        """As `writer`, until all is over."""
        self._others.append(self._going_on(self.ended, name, work, arguments))

    def _going_on(
        self, over: threading.Event, name: str, work: Callable[..., None], arguments: tuple[object, ...]
    ) -> threading.Thread:
        def go_on() -> None:
            while not over.is_set():
                with contextlib.suppress(KafkaException):  # a client that broke is made anew
                    work(name, *arguments)
                    continue
                time.sleep(0.5)

        return threading.Thread(target=go_on, name=f"{self.of} {name}".strip(), daemon=True)

    def start(self) -> None:
        for thread in (*self._writers, *self._others):
            thread.start()

    def stop_writing(self) -> None:
        self.writing.set()
        self._join(self._writers)

    def stop(self) -> None:
        self.writing.set()
        self.ended.set()
        self._join(self._others)

    def _join(self, threads: list[threading.Thread]) -> None:
        deadline = time.monotonic() + 120
        for thread in threads:
            thread.join(max(0.1, deadline - time.monotonic()))
            if thread.is_alive():
                self.stuck.append(thread.name)
