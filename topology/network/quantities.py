"""Times, shares and rates as people write them: `10ms`, `0.1%`, `100mbit`.

Used by the topology file and by `isthmus net`; both take the same words and give the same complaints.
Times are seconds, shares lie between 0 and 1, rates are bytes per second.
"""

from __future__ import annotations

import math
import re

_QUANTITY = re.compile(r"\s*(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*(?P<unit>[a-zA-Z%/]*)\s*")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_BYTES_A_SECOND = {
    "kbit": 1e3 / 8,
    "mbit": 1e6 / 8,
    "gbit": 1e9 / 8,
    "kb/s": 1e3,
    "mb/s": 1e6,
    "gb/s": 1e9,
}


def duration(text: str | float) -> float:
    """Seconds of `250us`, `10ms`, `1.5s` or `0`. Raises ValueError."""
    value, unit = _split(text, "a time such as 10ms or 1.5s")
    if value == 0 and not unit:
        return 0.0
    if unit not in _SECONDS:
        raise ValueError(f"'{text}' is not a time: say us, ms or s, for example 10ms")
    return value * _SECONDS[unit]


def share(text: str | float) -> float:
    """`0.1%` or `0.001`, from 0 to less than 1. Raises ValueError."""
    value, unit = _split(text, "a share such as 0.1%")
    if unit not in ("", "%"):
        raise ValueError(f"'{text}' is not a share: write 0.1% or 0.001")
    found = value / 100 if unit else value
    if not 0 <= found < 1:
        raise ValueError(f"'{text}' is not a share of what is sent: 0% to less than 100% (a cut loses all)")
    return found


def rate(text: str | float | None) -> float | None:
    """Bytes per second of `100mbit` or `10MB/s`; None for `none`, no limit. Raises ValueError."""
    if text is None or str(text).strip().lower() == "none":
        return None
    value, unit = _split(text, "a bandwidth such as 100mbit, 10MB/s or none")
    if unit not in _BYTES_A_SECOND:
        raise ValueError(f"'{text}' is not a bandwidth: say kbit, mbit, gbit or MB/s, for example 100mbit")
    if value == 0:
        raise ValueError("a bandwidth of 0 carries nothing: cut the link instead, or say none for no limit")
    return value * _BYTES_A_SECOND[unit]


def show_duration(seconds: float) -> str:
    return f"{seconds * 1e3:.6g}ms" if seconds < 1 else f"{seconds:.6g}s"


def show_share(value: float) -> str:
    return f"{value * 100:.6g}%"


def show_rate(bytes_a_second: float | None) -> str:
    return "none" if bytes_a_second is None else f"{bytes_a_second * 8 / 1e6:.6g}mbit"


def _split(text: str | float, wanted: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(str(text)) if not isinstance(text, bool) else None
    if match is None or not math.isfinite(float(match["number"])):
        raise ValueError(f"'{text}' is not {wanted}")
    return float(match["number"]), match["unit"].lower()
