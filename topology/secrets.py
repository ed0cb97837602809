"""Secrets by reference: `${env:NAME}` and `${file:path}` inside any string of the topology.

The file holds the reference, never the secret; error texts name the reference, never a value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

REFERENCE = re.compile(r"\$\{(?P<kind>[a-z]+):(?P<name>[^}]+)\}")
Report = Callable[[tuple[str | int, ...], str], None]


def resolve_secrets(node: Any, report: Report, at: tuple[str | int, ...] = ()) -> Any:
    """`node` with every reference replaced; what cannot be resolved is reported and left as it stands."""
    if isinstance(node, dict):
        return {key: resolve_secrets(value, report, (*at, key)) for key, value in node.items()}
    if isinstance(node, list):
        return [resolve_secrets(value, report, (*at, index)) for index, value in enumerate(node)]
    if isinstance(node, str) and "${" in node:
        return REFERENCE.sub(lambda match: _resolve(match, report, at), node)
    return node


def _resolve(match: re.Match[str], report: Report, at: tuple[str | int, ...]) -> str:
    kind, name = match["kind"], match["name"]
    if kind == "env":
        value = os.environ.get(name)
        if value is not None:
            return value
        report(at, f"environment variable {name} is not set")
    elif kind == "file":
        try:
            return Path(name).read_text(encoding="utf-8").strip()
        except OSError as error:
            report(at, f"secret file {name} cannot be read: {error.strerror}")
    else:
        report(at, f"'{match[0]}' is not a reference: use ${{env:NAME}} or ${{file:path}}")
    return match[0]
