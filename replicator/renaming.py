"""Names of an ad-hoc copy: `old=new`, or a pattern and what becomes of what it matches.

Owns one rule, pure. The left side is a regular expression for the whole name, so a plain name stands for
itself (its dots too); the right side may use what the groups caught: `orders\\.(.*)=archive.\\1`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


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
        if "\\" not in becomes and (wrong := wrong_name(becomes)):
            raise ValueError(f"'{text}': {wrong}")
        return cls(pattern, becomes)

    def apply(self, topic: str) -> str | None:
        """The new name, None when the rule does not concern the topic."""
        match = re.fullmatch(self.pattern, topic)
        return match.expand(self.becomes) if match is not None else None

    def concerns(self, topic: str) -> bool:
        """Whether the rule gives the topic a name, be it the one it has."""
        return self.apply(topic) is not None

    def __str__(self) -> str:
        return f"{self.pattern}={self.becomes}"


def wrong_name(topic: str) -> str | None:
    """Why no topic can be called so (Kafka's `Topic.validate`), or None."""
    if _LEGAL.fullmatch(topic) and topic not in (".", ".."):
        return None
    return f"'{topic}' is no topic name: up to 249 letters, digits, '.', '_' and '-' of ASCII"
