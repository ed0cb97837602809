"""How late the event loop is, and why: it serves everybody, so nothing may hold it up for long.

A beat in the loop measures how late it comes. The delay is split into CPU time of the loop's own thread (our
code ran), time that the thread was ready and got no processor (the machine is busy) and the rest (it waited
inside a system call, most often for a disk). With log level DEBUG a thread also notes where the loop stood.
Knows nothing of what runs in the loop. `Delays` is plain state; `LoopWatch` is the edge.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
import traceback

from broker.server.metrics import BrokerMetrics

logger = logging.getLogger("isthmus.broker.loop")

BEAT_S = 0.1
LATE_S = 0.05
# A peak stays visible for one to two of these, so that no scrape misses it.
PEAK_KEPT_S = 60.0
_LOOKS_S = 0.02


class Delays:
    """Seconds. `late` counts beats that were more than `LATE_S` late."""

    def __init__(self) -> None:
        self.late = 0
        self.total_s = 0.0
        self._peaks = [0.0, 0.0]
        self._turned_s = 0.0

    def note(self, now_s: float, delay_s: float) -> bool:
        """Whether this beat is late."""
        if now_s - self._turned_s >= PEAK_KEPT_S:
            self._peaks, self._turned_s = [self._peaks[1], 0.0], now_s
        self._peaks[1] = max(self._peaks[1], delay_s)
        if delay_s < LATE_S:
            return False
        self.late += 1
        self.total_s += delay_s
        return True

    @property
    def peak_s(self) -> float:
        """The longest delay of the last one to two minutes."""
        return max(self._peaks)


class LoopWatch:
    """Beats from `start` to `close`, both called in the loop's own thread."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        self.delays = Delays()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due_s = 0.0
        self._spent = (0.0, 0.0)
        self._schedule: int | None = None
        self._thread_id = 0
        self._stop = threading.Event()
        self._lookout: threading.Thread | None = None
        self._stack = ""
        metrics.gauge(
            "isthmus_broker_event_loop_delay_max_seconds",
            "Longest time in the last minute or two that the event loop kept others waiting",
            (),
            lambda: [((), self.delays.peak_s)],
        )
        metrics.counter(
            "isthmus_broker_event_loop_late_beats",
            f"Times that the event loop was more than {LATE_S * 1000:.0f} ms late",
            (),
            lambda: [((), self.delays.late)],
        )

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        with contextlib.suppress(OSError):  # Linux only
            self._schedule = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        self._spent = self._spend()
        if logger.isEnabledFor(logging.DEBUG):
            self._lookout = threading.Thread(target=self._look, name="loop-lookout", daemon=True)
            self._lookout.start()
        self._beat_later()

    def close(self) -> None:
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._lookout is not None:
            self._lookout.join()
        if self._schedule is not None:
            os.close(self._schedule)
            self._schedule = None

    def _beat_later(self) -> None:
        assert self._loop is not None
        self._due_s = time.monotonic() + BEAT_S
        self._timer = self._loop.call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        now_s = time.monotonic()
        spent = self._spend()
        if self.delays.note(now_s, now_s - self._due_s) and logger.isEnabledFor(logging.DEBUG):
            self._say(now_s - self._due_s, spent)
        self._spent, self._stack = spent, ""
        self._beat_later()

    def _say(self, delay_s: float, spent: tuple[float, float]) -> None:
        logger.debug(
            "the event loop was %.0f ms late: since the last beat it had %.0f ms of CPU time and waited"
            " %.0f ms for a processor%s",
            delay_s * 1000,
            (spent[0] - self._spent[0]) * 1000,
            (spent[1] - self._spent[1]) * 1000,
            f"; it stood at\n{self._stack}" if self._stack else "",
        )

    def _spend(self) -> tuple[float, float]:
        """(CPU seconds, seconds spent ready without a processor) of the loop's thread."""
        if self._schedule is None:
            return time.thread_time(), 0.0
        running, ready, _ = os.pread(self._schedule, 100, 0).split()
        return int(running) / 1e9, int(ready) / 1e9

    # -- the lookout's thread

    def _look(self) -> None:
        while not self._stop.wait(_LOOKS_S):
            if not self._stack and time.monotonic() - self._due_s > LATE_S:
                frame = sys._current_frames().get(self._thread_id)
                self._stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
