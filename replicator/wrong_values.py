"""What pydantic found wrong with a value, in the words of people who write files: what has to stand there.

Pure. Owns the words for each kind of error; where the value stands (file, line, path) is known by whoever
read it. Rules of the models are `ValueError`s with words of their own, which pass as they are.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_KINDS: Final[tuple[tuple[str, str], ...]] = (
    (r"int_|int$", "a whole number"),
    (r"float_|finite_number|decimal_", "a number"),
    (r"bool_", "true or false"),
    (r"string_type|string_sub_type|bytes_type", "text"),
    (r"path_type", "a path"),
    (r"(tuple|list|set|frozen_set|iterable)_type", "a list"),
    (r"(dict|mapping|model|model_attributes|dataclass|dataclass_exact|arguments)_type", "a mapping"),
)
_BOUNDS: Final[Mapping[str, str]] = {
    "greater_than": "has to be more than {gt}",
    "greater_than_equal": "has to be at least {ge}",
    "less_than": "has to be less than {lt}",
    "less_than_equal": "has to be at most {le}",
    "string_too_short": "has to have at least {min_length} characters",
    "string_too_long": "has to have at most {max_length} characters",
    "too_short": "has to have at least {min_length} entries",
    "too_long": "has to have at most {max_length} entries",
    "missing": "is missing",
    "extra_forbidden": "unknown key",
    "finite_number": "has to be a finite number",
}
_SCALAR: Final = str | int | float


def in_words(found: Sequence[ErrorDetails]) -> str:
    """Of one value; several errors are those of a choice of kinds, none of which it is."""
    kinds = list(dict.fromkeys(kind for each in found if (kind := _kind(each["type"]))))
    if len(kinds) > 1:
        return f"has to be {', '.join(kinds[:-1])} or {kinds[-1]}{shown(found[0])}"
    return _one(found[0])


def _one(found: ErrorDetails) -> str:
    kind, context, value = found["type"], found.get("ctx", {}), found.get("input")
    if kind in ("missing", "extra_forbidden"):
        return _BOUNDS[kind]
    if kind in _BOUNDS:
        limits = {
            name: f"{limit:g}" if isinstance(limit, float) else limit for name, limit in context.items()
        }
        words = _BOUNDS[kind].format(**limits)
        return re.sub(r"\b1 (character|entr)(s|ies)$", _one_of, words) + shown(found)
    if kind in ("literal_error", "enum"):
        return f"has to be {context['expected']}{_near(value, str(context['expected']))}{shown(found)}"
    named = _kind(kind)
    if named:
        return f"has to be {named}{_instead(named, value)}{shown(found)}"
    if kind == "value_error":
        return found["msg"].removeprefix("Value error, ") + shown(found)
    return re.sub(r"^(Input|Value|String) should", "has to", found["msg"]) + shown(found)


def _one_of(several: re.Match[str]) -> str:
    return f"1 {several[1]}" + ("y" if several[2] == "ies" else "")


def _kind(error: str) -> str:
    return next((kind for pattern, kind in _KINDS if re.match(pattern, error)), "")


def _instead(kind: str, value: object) -> str:
    """What to write, where that can be told from what stands there."""
    if kind == "a list" and isinstance(value, _SCALAR):
        return f": write [{value}]"
    if kind == "a mapping":
        return ", `name: value` for each setting"
    if kind == "text" and isinstance(value, int | float):
        return f": write '{_yaml(value)}', with the quotes"
    if kind.endswith("number") and isinstance(value, str):
        digits = re.match(r"\s*(\d[\d_. ]*)", value)
        return ", without a unit" if digits and digits.end() < len(value) else ""
    return ""


def _near(value: object, expected: str) -> str:
    if not isinstance(value, str):
        return ""
    words = re.findall(r"'([^']*)'", expected)
    near = difflib.get_close_matches(value.lower(), words, n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


def shown(found: ErrorDetails) -> str:
    """What stands there now; of lists and mappings only that they are."""
    value = found.get("input")
    if found["type"] in ("missing", "extra_forbidden"):
        return ""
    if isinstance(value, list | tuple):
        return " (found: a list)" if _kind(found["type"]) else ""
    if isinstance(value, Mapping):
        return " (found: a mapping)" if _kind(found["type"]) else ""
    return f" (found: {_yaml(value)})"


def _yaml(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)
