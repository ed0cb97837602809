r"""Java's .properties files as java.util.Properties reads them (ISO 8859-1, escapes, continued lines).

Owns the grammar only. A backslash before any other character than t, n, r, f, u is dropped: `a\.b` in a file
is the text `a.b`, which people who write regular expressions there do not always know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BYTE_ORDER_MARKS = ("\u00ef\u00bb\u00bf", "\ufeff")
"""As ISO 8859-1 and as UTF-8 read it."""


class PropertiesError(ValueError):
    """The file cannot be read; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Property:
    """One setting and the line where it begins (1-based)."""

    name: str
    text: str
    line: int
    place: str = ""
    """What people know it by, where it comes out of a file of another kind; else its name."""


def read_properties_file(path: Path | str) -> list[Property]:
    """All settings in order, also those that come twice. Raises PropertiesError."""
    try:
        text = Path(path).read_text(encoding="iso-8859-1")
    except OSError as error:
        raise PropertiesError(f"{path}: {error.strerror}") from error
    return parse_properties(text, str(path))


def as_mapping(properties: list[Property]) -> dict[str, str]:
    """Texts by name; the last one of a name counts, as in Java."""
    return {item.name: item.text for item in properties}


def parse_properties(text: str, source: str = "properties") -> list[Property]:
    """As `read_properties_file`, from text; `source` is what errors call it."""
    if text.startswith(_BYTE_ORDER_MARKS):
        raise PropertiesError(
            f"{source}:1: begins with a byte order mark, which is part of its first name, in Java too:"
            " save it without (UTF-8, not UTF-8 with BOM)"
        )
    found: list[Property] = []
    lines = re.split(r"\r\n|\r|\n", text)  # Java's ends of lines: a comment in UTF-8 may hold others
    number = 0
    while number < len(lines):
        first, line = number + 1, lines[number].lstrip(" \t\f")
        number += 1
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            line = line[:-1] + (lines[number].lstrip(" \t\f") if number < len(lines) else "")
            number += 1
        name, value = _split(line)
        try:
            found.append(Property(_plain(name), _plain(value), first))
        except ValueError:
            raise PropertiesError(
                f"{source}:{first}: \\u is not followed by four hexadecimal digits"
            ) from None
    return found


def _continues(line: str) -> bool:
    """Whether it ends with an odd number of backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Around the first `=`, `:` or blank that no backslash stands before."""
    at = 0
    while at < len(line) and line[at] not in "=: \t\f":
        at += 2 if line[at] == "\\" else 1
    value = line[at:].lstrip(" \t\f")
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(" \t\f")
    return line[:at], value


def _plain(text: str) -> str:
    """Without escapes."""
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append(char)
            continue
        escaped = text[at]
        at += 1
        if escaped == "u":
            digits = text[at : at + 4]
            if len(digits) < 4:
                raise ValueError(digits)
            out.append(chr(int(digits, 16)))
            at += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)
