"""What a group sync may write at the target: the rules, pure.

Owns the never-rewind rule and the reasons. A target group is written only while nobody reads with it; a
partition only forwards; a group of the target that another product or a failed-over consumer moved ahead
stays ahead. Offsets at 0 are written too: without them a consumer that had read nothing would start at its
own idea of a start (KAFKA-10048).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol.types import TopicPartition
from replicator.translate import GroupTranslation

_IDLE = frozenset({"Empty", "Dead", ""})


@dataclass(slots=True)
class SyncDecision:
    """Offsets to commit at the target, and in one line how the group stands (None: fully in sync)."""

    commits: dict[TopicPartition, int] = field(default_factory=dict)
    reason: str | None = None


def decide(
    translation: GroupTranslation,
    target_state: str,
    target_committed: Mapping[TopicPartition, int],
) -> SyncDecision:
    """What to write for one group whose state at the target is `target_state` (`Dead`: it does not exist)."""
    if not translation.positions:
        why = next(iter(translation.skipped.values()), "it has committed no offsets at the source")
        return SyncDecision(reason=f"nothing to translate: {why}")
    if target_state not in _IDLE:
        return SyncDecision(reason=f"the group is active at the target ({target_state})")
    commits = {
        tp: position.offset
        for tp, position in translation.positions.items()
        if position.offset > target_committed.get(tp, -1)
    }
    return SyncDecision(commits, _standing(translation, target_committed, commits))


def _standing(
    translation: GroupTranslation,
    target_committed: Mapping[TopicPartition, int],
    commits: Mapping[TopicPartition, int],
) -> str | None:
    notes = []
    held = sum(not position.exact for position in translation.positions.values())
    if held:
        notes.append(f"{held} partition(s) wait for records that are not copied yet")
    ahead = sum(
        target_committed.get(tp, -1) > position.offset
        for tp, position in translation.positions.items()
        if tp not in commits
    )
    if ahead:
        notes.append(f"{ahead} partition(s) are further at the target and are not taken back")
    if translation.skipped:
        notes.append(
            f"{len(translation.skipped)} partition(s) not translated: "
            f"{next(iter(translation.skipped.values()))}"
        )
    return "; ".join(notes) or None
