"""Moments as people write them on the command line, the same for all commands."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from isthmus.output import USAGE, fail

HELP = "a time (2026-01-31T08:00, with Z or +01:00 unless it is this machine's), ms since 1970, or 15m (ago)"
_AGO = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|min|h|d)(?:\s+ago)?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_LEAST_MS = 100_000_000_000
"""In 1973: a smaller number is meant otherwise, most often in seconds."""
_MOST_MS = 2**63 - 1


def moment_ms(text: str, option: str, others: str = "") -> int:
    """Milliseconds since 1970. Ends with a usage error that names the option, and what `others` it takes."""
    word = text.strip()
    seconds = word.isdecimal() and int(word) < _LEAST_MS
    if seconds and len(word) in (9, 10):
        fail(f"{option} '{text}' is not in ms: those since 1970 have 13 digits ({word}000?)", USAGE)
    found = None if seconds else _read(word)
    if found is None or not 0 <= found <= _MOST_MS:  # Kafka gives negative times meanings of their own
        fail(f"{option} '{text}' is not understood; say {others}{HELP}", USAGE)
    return found


def _read(word: str) -> int | None:
    try:
        if word.isdecimal():
            return int(word)
        ago = _AGO.fullmatch(word)
        if ago is not None:
            return round((time.time() - float(ago["number"]) * _SECONDS[ago["unit"]]) * 1000)
        return round(datetime.fromisoformat(word).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def shown(time_ms: int | None) -> str | None:
    """For people, in UTC."""
    if time_ms is None:
        return None
    try:
        at = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)  # a record may say anything
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
