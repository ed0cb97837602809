"""Names of an ad-hoc copy: `old=new`, or a pattern and what becomes of what it matches.

Owns one rule, pure. The left side is a regular expression for the whole name, so a plain name stands for
itself (its dots too); the right side may use what the groups caught: `orders\\.(.*)=archive.\\1`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Rename:
    """Topics that match `pattern` are called `becomes` at the target."""

    pattern: str
    becomes: str

    def __post_init__(self) -> None:
        try:
            compiled = re.compile(self.pattern)
            compiled.sub(self.becomes, "")
        except (re.error, IndexError) as error:
            raise ValueError(f"'{self}' is no rule for names: {error}") from error

    @classmethod
    def parse(cls, text: str) -> Self:
        """`old=new`. Raises ValueError."""
        pattern, equals, becomes = text.partition("=")
        if not equals or not pattern or not becomes:
            raise ValueError(f"'{text}' is no rule for names: write old=new, or 'a\\.(.*)=b.\\1'")
        return cls(pattern, becomes)

    def apply(self, topic: str) -> str | None:
        """The new name, None when the rule does not concern the topic."""
        match = re.fullmatch(self.pattern, topic)
        return match.expand(self.becomes) if match is not None else None

    def __str__(self) -> str:
        return f"{self.pattern}={self.becomes}"
