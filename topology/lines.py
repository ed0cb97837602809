"""Where in a YAML file a value stands: a path of keys and indexes to a line number (1-based).

Knows ruamel's round-trip containers and nothing about what the values mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Path = Sequence[str | int]


def line_of(document: Any, path: Path) -> int:
    """Line of the deepest part of `path` that exists; a missing key reports its parent's line."""
    line, node = 1, document
    for part in path:
        found = _step(node, part)
        if found is None:
            break
        line, node = found
    return line


def _step(node: Any, part: str | int) -> tuple[int, Any] | None:
    marks = getattr(node, "lc", None)
    if marks is None:
        return None
    if isinstance(node, dict) and part in node:
        return marks.key(part)[0] + 1, node[part]
    if isinstance(node, list) and isinstance(part, int) and 0 <= part < len(node):
        return marks.item(part)[0] + 1, node[part]
    return None
