"""Packages that only some commands need, extras in `pyproject.toml`: what is missing, how to install it."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec


def missing(what: str, extra: str, *packages: str) -> str:
    """Which of `packages` `what` does not find, and the command that installs them; empty: all are there.

    Nothing is imported for it.
    """
    absent = [name for name in packages if find_spec(name) is None]
    if not absent:
        return ""
    command = f"{shlex.quote(sys.executable)} -m pip install 'isthmus[{extra}]'"
    return f"{what} needs {', '.join(absent)}, not installed here. Install it with\n  {command}"
