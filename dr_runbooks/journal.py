"""The journal of a drill: one JSON line per event, on disk before the next step begins."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self


class Journal:
    """Events are `run-started`, `step-started`, `step-ended`, `run-ended` or `run-interrupted`, each with
    `at` (epoch seconds); those of steps with their `part`: `steps` or `rollback`.

    Never overwrites a journal: raises FileExistsError.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file: IO[str] = path.open("x", encoding="utf-8")

    def write(self, event: str, at: float, **fields: Any) -> None:
        line = json.dumps({"event": event, "at": round(at, 3), **fields}, default=str, ensure_ascii=False)
        self._file.write(line + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Events of a journal; a last line that a crash cut short is left out."""
    events: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            break
    return events
