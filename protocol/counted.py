"""A number of things, as people say it."""

from __future__ import annotations


def counted(count: int, noun: str, spec: str = "") -> str:
    """`1 record`, `2 records`; `spec` is how the number is written (`,`: 10,000)."""
    return f"{count:{spec}} {noun}" + ("" if count == 1 else "s")
