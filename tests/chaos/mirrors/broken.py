"""Changes of roles with one safety rule switched off, to show that the judge finds what the rule is for.

    python -m tests.chaos.mirrors.broken RULE mirrors promote …    # the rest is the command line of `isthmus`

Patches the real code in the process of this command alone; production has no such switch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.cli import main
from replicator.mirrors import reversing, switching
from tests.chaos.links.broken import replace_rule


def _saved_before_cut() -> None:
    """What only the old side has is cut off, and nowhere else."""

    async def nothing(*_: object) -> Path:
        return Path("/dev/null")

    replace_rule(reversing, "save", nothing)


def _drained_before_writable() -> None:
    """Mirrors are writable at once, whatever is left to copy."""

    async def nothing(*_: object, **__: object) -> None:
        pass

    async def none(*_: object, **__: object) -> list[Any]:
        return []

    replace_rule(switching, "_drain", nothing)
    replace_rule(switching, "_transactions_end", nothing)
    replace_rule(switching, "risks", none)


@dataclass(frozen=True, slots=True)
class Rule:
    switch_off: Callable[[], None]
    shows: str
    """The anomaly that it has to be missed by."""
    acts: tuple[str, ...]
    faults: tuple[str, ...]
    """Which bring it about."""


RULES: dict[str, Rule] = {
    "drained_before_writable": Rule(
        _drained_before_writable, "cut", ("promote",), ("cut_path", "slow_path", "pause_worker")
    ),
    "saved_before_cut": Rule(
        _saved_before_cut, "lost", ("failover_dead", "failover_alive"), ("cut_path", "slow_path")
    ),
}

if __name__ == "__main__":
    RULES[sys.argv.pop(1)].switch_off()
    main()
