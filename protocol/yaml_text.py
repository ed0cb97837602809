"""YAML with the line of each value: documents of a text; a path of keys and indexes to a line (1-based).

Owns the grammar, and what keeps a hostile or odd file from costing more than its error. Knows nothing about
what the values mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

Path = Sequence[str | int]

_MAX_VALUES: Final = 100_000


class YamlTextError(ValueError):
    """The text cannot be read; `line` says where."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


def parse_yaml(text: str) -> list[Any]:
    """All documents with their line marks. Raises YamlTextError."""
    try:
        documents = list(YAML(typ="rt").load_all(text))
        if _size(documents) > _MAX_VALUES:
            raise YamlTextError(1, f"aliases make more than {_MAX_VALUES} values of it")
        return documents
    except RecursionError:
        raise YamlTextError(1, "nested too deeply, or an alias holds itself") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise YamlTextError(line, f"not valid YAML: {error.problem}") from None
    except YAMLError as error:
        raise YamlTextError(1, f"not valid YAML: {error}") from None
    except YamlTextError:
        raise
    except (ValueError, TypeError, AttributeError) as error:  # ruamel's own, for odd numbers, keys and tags
        raise YamlTextError(1, f"cannot be understood: {error}") from None


def _size(node: Any) -> int:
    """Number of values once aliases are filled in; stops counting far above what a file can need."""
    count = 1
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        count += _size(value)
        if count > _MAX_VALUES:
            break
    return count


def line_of(document: Any, path: Path) -> int:
    """Line of the deepest part of `path` that exists; a missing key reports its parent's line."""
    line, node = 1, document
    for part in path:
        found = _step(node, part, line)
        if found is None:
            break
        line, node = found
    return line


def _step(node: Any, part: str | int, line: int) -> tuple[int, Any] | None:
    marks = getattr(node, "lc", None)
    if marks is None:
        return None
    if isinstance(node, dict) and part in node:
        here = part in (marks.data or {})  # else it comes by a merge key (`<<`)
        return marks.key(part)[0] + 1 if here else line, node[part]
    if isinstance(node, list) and isinstance(part, int) and 0 <= part < len(node):
        return marks.item(part)[0] + 1, node[part]
    return None


def plain(node: Any) -> Any:
    """A document without its line marks."""
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(value) for value in node]
    return node
