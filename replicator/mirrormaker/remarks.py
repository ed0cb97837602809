"""What is to be said about a file of MirrorMaker 2: problems, which are errors, and remarks.

Owns where each is said, by line and setting, and that all problems are told at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from protocol.counted import counted
from protocol.properties_text import Property


@dataclass(frozen=True, order=True, slots=True)
class Remark:
    """Something about one setting, at the line where it stands (0: it stands nowhere)."""

    line: int
    setting: str
    text: str

    def __str__(self) -> str:
        where = (f"line {self.line}" if self.line else "", self.setting, self.text)
        return ": ".join(filter(None, where))


class MirrorMakerFileError(Exception):
    """The file cannot be used; all problems at once, in line order."""

    def __init__(self, source: str, problems: Iterable[Remark]) -> None:
        self.problems = sorted(set(problems))
        count = len(self.problems)
        head = f"{source}: {counted(count, 'problem')}"
        super().__init__("\n".join([head, *(f"  {problem}" for problem in self.problems)]))


@dataclass(slots=True)
class Remarks:
    """What was found so far."""

    problems: list[Remark] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)

    def wrong(self, item: Property, text: str) -> None:
        self.problems.append(Remark(item.line, item.place or item.name, text))

    def is_wrong(self, item: Property) -> bool:
        """Whether a problem with it was told before."""
        return (item.line, item.place or item.name) in {(one.line, one.setting) for one in self.problems}

    def missing(self, setting: str, text: str) -> None:
        """A problem with what stands nowhere."""
        self.problems.append(Remark(0, setting, text))

    def note(self, item: Property, text: str) -> None:
        self.remarks.append(Remark(item.line, item.place or item.name, text))
