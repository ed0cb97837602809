"""Progress of long work on standard error: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from isthmus.output import note, printable

LINE_EVERY_S = 5.0


class ProgressDisplay:
    """`with ProgressDisplay() as show: show("copying", 17, 100)`; a total of 0 is unknown."""

    def __init__(self) -> None:
        self._bars = (
            Bars(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            if sys.stderr.isatty()
            else None
        )
        self._tasks: dict[str, int] = {}
        self._last_line = time.monotonic()

    def __call__(self, phase: str, done: int, total: int) -> None:
        if self._bars is None:
            if time.monotonic() - self._last_line >= LINE_EVERY_S:
                self._last_line = time.monotonic()
                note(f"{phase}: {done}" + (f" of {total}" if total else ""))
            return
        if phase not in self._tasks:
            self._tasks[phase] = self._bars.add_task(phase, total=total or None)
        self._bars.update(self._tasks[phase], completed=done, total=total or None)  # type: ignore[arg-type]

    def say(self, line: str, done: int, total: int) -> None:
        """As calling it, with a whole line of one's own that changes each time."""
        if self._bars is None:
            if time.monotonic() - self._last_line >= LINE_EVERY_S:
                self._last_line = time.monotonic()
                note(line)
            return
        line = printable(line)
        task = self._tasks.get("")
        if task is None:
            task = self._tasks[""] = self._bars.add_task(line, total=total or None)
        self._bars.update(task, description=line, completed=done, total=total or None)  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
