"""What would make the topics of a running cluster what the topology declares, and what is left alone.

Pure. Settings that a running operation has set are the operation's: a throttle of moving replicas is no
drift, and taking it away would let the move run without a brake (KIP-73, KIP-455). Nothing is deleted that
nobody asked for: settings that the file does not name are shown, and unset only when told (`prune`).
Asking and changing the cluster: `topic_changes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from topology.broker_settings import OPERATIONAL, text_of
from topology.models import Topic


class Deed(StrEnum):
    """What would be done; the last three are told and left alone."""

    CREATE = "create"
    GROW = "grow"
    SET = "set"
    UNSET = "unset"
    UNDECLARED = "undeclared"
    OPERATIONAL = "operational"
    IMPOSSIBLE = "impossible"


DONE_BY_APPLY = frozenset({Deed.CREATE, Deed.GROW, Deed.SET, Deed.UNSET})


@dataclass(frozen=True)
class TopicNow:
    """A topic as the cluster has it. `overrides` are its own settings, not defaults."""

    partitions: int
    replication_factor: int
    overrides: Mapping[str, str]
    effective: Mapping[str, str]
    """Values of all settings, by whatever they come."""


@dataclass(frozen=True)
class Step:
    deed: Deed
    topic: str
    key: str = ""
    """A setting, `partitions` or `replication_factor`."""
    now: str | None = None
    wanted: str | None = None

    @property
    def is_change(self) -> bool:
        return self.deed in DONE_BY_APPLY

    def __str__(self) -> str:
        what = f"{self.topic}: {self.key}"
        match self.deed:
            case Deed.CREATE:
                return f"{self.topic}: create it ({self.wanted})"
            case Deed.GROW | Deed.SET:
                return f"{what}: {self.now} -> {self.wanted}"
            case Deed.UNSET:
                return f"{what}: {self.now} -> the broker's default"
            case Deed.UNDECLARED:
                return f"{what}={self.now} is set, not declared: left alone; --prune unsets it"
            case Deed.OPERATIONAL:
                return (
                    f"{what}={self.now} belongs to a move of replicas: left alone;"
                    " kafka-reassign-partitions --verify removes it when the move is over"
                )
            case Deed.IMPOSSIBLE:
                return f"{what}: is {self.now}, declared is {self.wanted}: {_IMPOSSIBLE[self.key]}"


_IMPOSSIBLE = {
    "partitions": "Kafka has no way to fewer partitions",
    "replication_factor": "moving replicas is kafka-reassign-partitions' work",
}


def plan_topics(
    declared: Mapping[str, Topic], found: Mapping[str, TopicNow], *, prune: bool = False
) -> list[Step]:
    """Steps of all declared topics, in the file's order; other topics are nobody's business."""
    return [
        step for name, topic in declared.items() for step in _of_topic(name, topic, found.get(name), prune)
    ]


def _of_topic(name: str, topic: Topic, now: TopicNow | None, prune: bool) -> Iterator[Step]:
    if now is None:
        size = f"partitions {topic.partitions}, replication factor {topic.replication_factor}"
        yield Step(Deed.CREATE, name, wanted=size)
        return
    if topic.partitions != now.partitions:
        deed = Deed.GROW if topic.partitions > now.partitions else Deed.IMPOSSIBLE
        yield Step(deed, name, "partitions", str(now.partitions), str(topic.partitions))
    if topic.replication_factor != now.replication_factor:
        factors = str(now.replication_factor), str(topic.replication_factor)
        yield Step(Deed.IMPOSSIBLE, name, "replication_factor", *factors)
    wanted = {key: text_of(value) for key, value in topic.configs.items()}
    for key, text in wanted.items():
        if now.overrides.get(key) != text and (key in now.overrides or now.effective.get(key) != text):
            yield Step(Deed.SET, name, key, now.effective.get(key), text)
    for key in sorted(now.overrides.keys() - wanted.keys()):
        undeclared = Deed.UNSET if prune else Deed.UNDECLARED
        deed = Deed.OPERATIONAL if key in OPERATIONAL else undeclared
        yield Step(deed, name, key, now.overrides[key])


def changes_of(steps: Iterable[Step]) -> dict[str, dict[str, str | None]]:
    """Settings to alter, by topic; None takes one back to its default (IncrementalAlterConfigs, KIP-339)."""
    changes: dict[str, dict[str, str | None]] = {}
    for step in steps:
        if step.deed in (Deed.SET, Deed.UNSET):
            changes.setdefault(step.topic, {})[step.key] = step.wanted
    return changes
