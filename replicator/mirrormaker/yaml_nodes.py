"""A part of a YAML document that knows where it stands: its fields, and what is said about them.

Owns walking, and the words for what has another shape than it should have or is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from protocol.properties_text import Property
from protocol.yaml_text import Path, line_of
from replicator.mirrormaker.remarks import Remarks


@dataclass(frozen=True, slots=True)
class Node:
    """`value` at `path` of `document`."""

    document: Any
    value: Any
    path: Path
    said: Remarks

    def has(self, name: str) -> bool:
        """Whether a field is there and holds something."""
        return isinstance(self.value, dict) and self.value.get(name) is not None

    def property(self, name: str) -> Property:
        """A field as a setting; "" is the node itself. What is no single value has no text."""
        path = (*self.path, name) if name else tuple(self.path)
        value = self.value.get(name) if name and isinstance(self.value, dict) else None
        return Property(name, scalar(value) or "", line_of(self.document, path), ".".join(map(str, path)))

    def text(self, name: str) -> str | None:
        """None where the field is not there; a problem where it is no single value."""
        if not self.has(name):
            return None
        text = scalar(self.value[name])
        if text is None:
            self.said.wrong(self.property(name), "has to be a text, a number, true or false")
        return text

    def needed(self, name: str) -> str | None:
        """As `text`; that it is missing is a problem."""
        if not self.has(name):
            self.said.wrong(self.property(name), "is missing")
        return self.text(name)

    def inner(self, name: str, *, needed: bool = True) -> Node | None:
        """A mapping in a field; null is none, as in Kubernetes."""
        if not isinstance(self.value, dict) or self.value.get(name) is None:
            if needed:
                self.said.wrong(self.property(name), "is missing")
            return None
        if not isinstance(self.value[name], dict):
            self.said.wrong(self.property(name), "has to be a mapping")
            return None
        return Node(self.document, self.value[name], (*self.path, name), self.said)

    def each(self, name: str) -> list[Node]:
        """Mappings of a list in a field; none where it is not there."""
        listed = self.value.get(name) if isinstance(self.value, dict) else None
        if listed is None:
            return []
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            self.said.wrong(self.property(name), "has to be a list of mappings")
            return []
        return [
            Node(self.document, one, (*self.path, name, number), self.said)
            for number, one in enumerate(listed)
        ]

    def settings(self, name: str) -> dict[str, Property]:
        """A mapping of single values in a field; those that are null are not there."""
        node = self.inner(name, needed=False)
        if node is None:
            return {}
        return {str(key): node.property(key) for key in node.value if node.text(key) is not None}

    def fields(self, known: Iterable[str], no_meaning: Mapping[str, str]) -> None:
        """Says what is not known, and what has no meaning here and why."""
        names = (*known, *no_meaning)
        for name in self.value if isinstance(self.value, dict) else ():
            if name in no_meaning:
                self.said.note(self.property(name), f"has no meaning here: {no_meaning[name]}")
            elif name not in names:
                near = get_close_matches(str(name), names, n=1, cutoff=0.7)
                hint = f"; did you mean '{near[0]}'?" if near else ""
                self.said.wrong(self.property(name), f"is no field of it{hint}")


def scalar(value: Any) -> str | None:
    """A setting's text, as Connect gets it of JSON and YAML; null is empty. None: it is no single value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    return str(value) if isinstance(value, str | int | float) else None
