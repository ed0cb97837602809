"""What a group sync may write at the target: the rules, pure.

Owns the never-rewind rule, its exceptions by policy, and the reasons. A target group is written only while
nobody reads with it; a partition only forwards, but where the target has lost the records that it stood
behind; a group of the target that another product or a failed-over consumer moved ahead stays ahead. Offsets
at 0 are written too: without them a consumer that had read nothing would start at its own idea of a start
(KAFKA-10048). A reset or a deletion that somebody made at the source follows where the link is told so, and
only what the link itself has set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import TopicPartition
from replicator.group_rows import GroupNotes
from replicator.translate import GroupTranslation, Position

_IDLE = frozenset({"Empty", "Dead", ""})
_REFUSE_GROUP = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
_NOT_TAKEN_BACK = "further at the target and are not taken back"
_AT_MOST = 10
_NAMED = 100


@dataclass(frozen=True, slots=True)
class Rewinds:
    """`groups_on_rewind: follow`: what the link has set of the group, and its state at the source."""

    notes: GroupNotes
    source_state: str

    def refuses(self, there: TopicPartition, committed: int, position: Position) -> str | None:
        """Why a partition does not go back; None: it does."""
        noted = self.notes.get(there)
        if noted is None or noted.target != committed:
            return "it was not this link that set them"
        if position.committed >= noted.source:
            return "the source did not go back"
        if self.source_state not in _IDLE:
            return f"the group has members at the source ({self.source_state})"
        return None


class Stood(NamedTuple):
    """A group was at `target`, and that was right for `source`, what it had committed there."""

    target: int
    source: int

    def is_void(self, committed: int, position: Position) -> bool:
        """Whether it is still there, and has not gone back at the source, though something less is right now:
        the target has lost records, and those behind `target` are others."""
        return self.target == committed and position.committed >= self.source


NOWHERE = Stood(-1, -1)


@dataclass(slots=True)
class SyncDecision:
    """Offsets to commit at the target, and in one line how the group stands (None: fully in sync)."""

    commits: dict[TopicPartition, int] = field(default_factory=dict)
    reason: str | None = None
    waits: bool = False
    """Looking again soon may bring more."""
    goes_back: bool = False
    """A reset at the source is followed."""


def decide(
    translation: GroupTranslation,
    target_state: str,
    target_committed: Mapping[TopicPartition, int],
    rewinds: Rewinds | None = None,
    stood: Mapping[TopicPartition, Stood] = MappingProxyType({}),
) -> SyncDecision:
    """What to write for one group whose state at the target is `target_state` (`Dead`: it does not exist).
    `stood`: where it was right when the link looked last."""
    if not translation.positions:
        why = next(iter(translation.skipped.values()), "it has committed no offsets at the source")
        return SyncDecision(reason=f"nothing to translate: {why}")
    if not is_idle(target_state):
        return SyncDecision(reason=f"the group is active at the target ({target_state})", waits=True)
    commits: dict[TopicPartition, int] = {}
    ahead: Counter[str] = Counter()
    goes_back = False
    for tp, position in translation.positions.items():
        there = target_committed.get(tp, -1)
        if position.offset < there and not stood.get(tp, NOWHERE).is_void(there, position):
            refusal = rewinds.refuses(tp, there, position) if rewinds is not None else ""
            if refusal is not None:
                ahead[refusal] += 1
                continue
            goes_back = True
        if position.offset != there:
            commits[tp] = position.offset
    waits = rewinds is not None and bool(ahead)
    return SyncDecision(commits, _standing(translation, ahead), waits, goes_back)


def is_synced(protocol_type: str) -> bool:
    """Whether a group has committed offsets as consumers have, to be translated: those of consumers, also by
    KIP-848, of Kafka Streams' own protocol (KIP-1071), and groups that were never joined."""
    return protocol_type in ("consumer", "streams", "")


def why_not_synced(protocol_type: str) -> str | None:
    """Of a group that reads topics, and has no offsets that could be translated; None: of others."""
    if protocol_type == "share":
        return "a share group (KIP-932): it has no committed offsets that could be translated"
    return None


def refuses_group(error: ProtocolError) -> bool:
    """Whether the target has taken no position at all, for what the group is there."""
    return isinstance(error, KafkaError) and error.code in _REFUSE_GROUP


def why_refused(error: ProtocolError) -> str:
    """Why the target did not take positions of a group."""
    code = error.code if isinstance(error, KafkaError) else None
    if code is ErrorCode.UNKNOWN_MEMBER_ID:
        return "the group is active at the target"
    if code is ErrorCode.GROUP_ID_NOT_FOUND:
        return "a group of another kind has its name at the target (a share group, perhaps)"
    return str(error)


def is_idle(state: str) -> bool:
    """Whether nobody reads with a group (`Dead`: it does not exist)."""
    return state in _IDLE


def _standing(translation: GroupTranslation, ahead: Mapping[str, int]) -> str | None:
    notes = []
    held = sum(not position.exact for position in translation.positions.values())
    if held:
        notes.append(f"{held} partition(s) wait for records that are not copied yet")
    for why, count in ahead.items():
        notes.append(f"{count} partition(s) are {_NOT_TAKEN_BACK}" + (f": {why}" if why else ""))
    if translation.skipped:
        notes.append(
            f"{len(translation.skipped)} partition(s) not translated: "
            f"{next(iter(translation.skipped.values()))}"
        )
    return "; ".join(notes) or None


def in_short(groups: Mapping[str, str | None]) -> dict[str, Any]:
    """Of groups and why they are not in sync (None: they are): `in_sync` and `not_in_sync` are how many,
    `reasons` those of the first hundred by name."""
    reasons = {name: why for name, why in sorted(groups.items()) if why is not None}
    return {
        "in_sync": len(groups) - len(reasons),
        "not_in_sync": len(reasons),
        "reasons": dict(islice(reasons.items(), _NAMED)),
    }


def held_back(gone: Collection[str], owned: int, *, any_at_source: bool) -> str | None:
    """Why no group is deleted now although `gone` of `owned` are missing at the source: perhaps it has lost
    them, and then they are what a failover needs."""
    if gone and not any_at_source:
        return "the source shows no groups at all: kept at the target"
    if len(gone) > _AT_MOST and len(gone) * 4 > owned:
        return f"{len(gone)} of {owned} groups are gone at the source at once: kept at the target"
    return None


def refuses_deletion(
    notes: GroupNotes,
    source_state: str,
    target_state: str,
    target_committed: Mapping[TopicPartition, int],
    source_topics: Collection[str],
) -> str | None:
    """Why a group that is missing at the source is kept at the target; None: it is deleted there too."""
    if source_state not in ("Dead", ""):
        return f"its coordinator at the source says {source_state}"
    if any(one.tp.topic not in source_topics for one in notes.values()):
        return "a topic that it has read is gone at the source too"
    if not is_idle(target_state):
        return f"the group is active at the target ({target_state})"
    if any(tp not in notes or notes[tp].target != offset for tp, offset in target_committed.items()):
        return "it has positions at the target that this link did not set"
    return None
