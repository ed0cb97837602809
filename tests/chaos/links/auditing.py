"""The product's own audit on Spark, of one link, at the end of a run."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Collection
from typing import Any

from tests.chaos.links.world import ROOT, LinkWorld

_AUDIT_S = 900.0
_WRONG = ("lost", "duplicate", "corrupt", "reordered", "misaligned", "foreign", "divergent")


def audited(world: LinkWorld, link: str, topics: Collection[str]) -> dict[str, Any]:
    """`exit_code` and what was counted, of these topics at the source; says what was not right.
    `is_explained`: there is nothing but gaps that are on record."""
    command = [sys.executable, "-m", "isthmus", "audit", "--link", link]
    command += [part for topic in sorted(topics) for part in ("--topic", topic)]
    command += ["--topology", str(world.file), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_AUDIT_S, cwd=ROOT, check=False)
    result: dict[str, Any] = {"exit_code": done.returncode}
    with contextlib.suppress(ValueError, KeyError):
        result |= json.loads(done.stdout)["totals"]
        result["is_explained"] = not any(result[name] for name in _WRONG)
    if done.returncode:
        world.say(f"audit of {link} ended with {done.returncode}: {done.stdout[:3000]}{done.stderr[-1000:]}")
    return result
