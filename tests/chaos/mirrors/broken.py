"""Changes of roles with one safety rule switched off, to show that the judge finds what the rule is for.

    python -m tests.chaos.mirrors.broken RULE mirrors promote …    # the rest is the command line of `isthmus`

Patches the real code in the process of this command alone; production has no such switch.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.cli import main
from protocol.client import ClusterClient
from protocol.client.mirror_calls import MirrorAnswer, MirrorBatches
from protocol.types import TopicPartition
from replicator.mirrors import reversing, switching
from replicator.mirrors.partition import MirrorPartition
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


def _begin_followed() -> None:
    """Mirrors keep what their source has let go of."""

    def never(
        self: ClusterClient,
        node: int,
        sources: Mapping[str, str],
        batches: Mapping[TopicPartition, MirrorBatches],
        **more: Any,
    ) -> Awaitable[dict[TopicPartition, MirrorAnswer]]:
        kept = {
            tp: piece if piece.source_start > piece.offset else piece._replace(source_start=-1)
            for tp, piece in batches.items()
        }
        return append(self, node, sources, kept, **more)

    append = ClusterClient.mirror_append
    replace_rule(ClusterClient, "mirror_append", never)
    replace_rule(MirrorPartition, "to_let_go", 0)  # a promotion would wait for it


def _filled_anew() -> None:
    """What the old side's cleaner took because of records that are cut off does not come again."""

    async def none(*_: object) -> dict[TopicPartition, int]:
        return {}

    replace_rule(reversing, "_filled_anew", none)


@dataclass(frozen=True, slots=True)
class Rule:
    switch_off: Callable[[], None]
    shows: str
    """The anomaly that it has to be missed by."""
    acts: tuple[str, ...]
    faults: tuple[str, ...]
    """Which bring it about."""


RULES: dict[str, Rule] = {
    "begin_followed": Rule(_begin_followed, "differing", ("promote",), ("delete_records", "kill_worker")),
    "filled_anew": Rule(_filled_anew, "lost", ("failover_alive",), ("cut_path", "slow_path")),
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
