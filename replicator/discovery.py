"""What there is to copy: the source's topics through the link's filter, seconds after they appear.

Owns the decision which topics are wanted and why others are not, pure. Knows no clients. A topic that is
missing from one listing is not taken for deleted here; the reader of its partitions finds that out for
certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol.client import TopicMetadata
from replicator.filters import TopicFilter
from replicator.naming import Naming


@dataclass(frozen=True, slots=True)
class Wanted:
    """A topic to copy, its name at the target, and how the target stands."""

    source: TopicMetadata
    target_name: str
    target: TopicMetadata | None

    @property
    def missing_partitions(self) -> int:
        """How many partitions the target's topic has too few (all of them when it does not exist)."""
        have = len(self.target.partitions) if self.target is not None else 0
        return max(len(self.source.partitions) - have, 0)


@dataclass(slots=True)
class Found:
    """One look at both clusters."""

    wanted: dict[str, Wanted] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """Topics that are not copied, and why."""
    looked: bool = True
    """False before the first look."""


def discover(
    source: Mapping[str, TopicMetadata],
    target: Mapping[str, TopicMetadata],
    topics: TopicFilter,
    naming: Naming,
    current: Mapping[str, str] | None = None,
) -> Found:
    """Sorts the source's topics. `current`: mirrors that are not called as `naming` says (`mirror_rows`)."""
    found = Found()
    for name, topic in source.items():
        reason = topics.refuses(name)
        if reason is None and topic.error:
            reason = f"the source says {topic.error.name}"
        if reason is not None:
            found.refused[name] = reason
            continue
        at_target = (current or {}).get(name) or naming.at_target(name)
        there = target.get(at_target)
        if there is not None and there.error:
            there = None
        found.wanted[name] = Wanted(topic, at_target, there)
    return found
