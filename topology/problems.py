"""What is wrong with a topology file: every problem at once, each with its line and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from protocol.counted import counted


@dataclass(frozen=True, order=True)
class Problem:
    line: int
    """0: of the file as a whole."""
    where: str
    """Dotted path, for example `clusters.east.brokers.0.port`."""
    message: str

    def __str__(self) -> str:
        line = f"line {self.line}" if self.line else ""
        return ": ".join(part for part in (line, self.where, self.message) if part)


class TopologyError(Exception):
    """The file cannot be used; `problems` is never empty and is in line order."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = sorted(set(problems))
        count = len(self.problems)
        if count == 1 and not self.problems[0].line:
            super().__init__(f"{source} {self.problems[0].message}")
            return
        head = f"{source}: {counted(count, 'problem')}"
        super().__init__("\n".join([head, *(f"  {problem}" for problem in self.problems)]))


def dotted(path: Sequence[str | int]) -> str:
    return ".".join(str(part) for part in path)


def suggestion(word: str, known: Iterable[object]) -> str:
    """`; did you mean 'x'?` for a near miss, else what is possible when that list is short."""
    names = sorted(str(name) for name in known)  # a key without quotes may be a number
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    if names and len(names) <= 8:
        return f"; possible: {', '.join(names)}"
    return ""
