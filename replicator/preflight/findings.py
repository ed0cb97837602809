"""A finding: what was looked at, what is wrong, and what to do.

Owns the shape and putting the same finding about many topics together. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

_NAMED = 5


class Level(StrEnum):
    """ERROR: something will not be copied, or not as it should. WARNING: it works, perhaps not for ever."""

    ERROR = "error"
    WARNING = "warning"
    OK = "ok"


@dataclass(frozen=True, slots=True)
class Finding:
    """`subjects` are the topics, groups or brokers that it is about."""

    level: Level
    check: str
    where: str
    what: str
    to_do: str = ""
    subjects: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For machines, with all subjects."""
        return {**asdict(self), "subjects": list(self.subjects)}

    def __str__(self) -> str:
        about = f" ({named(self.subjects)})" if self.subjects else ""
        then = f"; {self.to_do}" if self.to_do else ""
        return f"{self.level}: {self.check}: {self.where}: {self.what}{about}{then}"


def grant(operations: Iterable[str], resource: str) -> str:
    """What gives the link's user these rights; `resource`: as the command names it, `--topic orders`."""
    flags = " ".join(f"--operation {name.title().replace('_', '')}" for name in operations)
    command = f"kafka-acls --add --allow-principal User:<link> {flags} {resource}"
    return f"grant it to the link's user: {command}"


def named(subjects: Sequence[str]) -> str:
    """The first few by name, the rest by number."""
    rest = len(subjects) - _NAMED
    return ", ".join(subjects[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def together(
    level: Level, check: str, where: str, said: Mapping[tuple[str, str], list[str]]
) -> Iterator[Finding]:
    """One finding for each (what, to do), about all its subjects."""
    for (what, to_do), subjects in said.items():
        yield Finding(level, check, where, what, to_do, tuple(sorted(subjects)))
