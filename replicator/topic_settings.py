"""Who owns a topic's settings, key by key, and what follows where source and target differ.

Owns the rule, pure; the sync does what it says and the drift report shows it. As in MirrorMaker 2 a link
copies what is set on the source topic itself, except excluded, read-only and secret keys (with
`use_defaults_from: source` its defaults too, but never what a broker's own file says). Unlike MM2 it leaves
alone what somebody else has set at the target: only what the link has set, and nobody has changed since, is
taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from protocol.client import ConfigEntry, ConfigSource
from replicator.filters import PatternList

_OF_THE_CLUSTER = frozenset(
    {ConfigSource.DEFAULT, ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER}
)


class Owner(StrEnum):
    """Whose word counts for a key."""

    LINK = "link"
    TARGET = "target"


class Action(StrEnum):
    """What the link does about a difference."""

    SET = "set"
    TAKE_BACK = "take back"
    NONE = "leave"


@dataclass(frozen=True, slots=True)
class Difference:
    """One key that is not alike on both sides."""

    key: str
    source: str | None
    target: str | None
    owner: Owner
    action: Action
    why: str


@dataclass(frozen=True, slots=True)
class CopyRule:
    """Which settings of a source topic are the link's."""

    exclude: PatternList
    source_defaults: bool = False

    def takes(self, key: str, entry: ConfigEntry) -> bool:
        """Whether the link copies this setting of a source topic."""
        if entry.value is None or entry.read_only or entry.is_sensitive or self.exclude.matches(key):
            return False
        return entry.source is ConfigSource.TOPIC or (
            self.source_defaults and entry.source in _OF_THE_CLUSTER
        )

    def to_copy(self, configs: Mapping[str, ConfigEntry]) -> dict[str, str]:
        """The settings of a source topic that the target's topic shall have."""
        return {
            key: entry.value
            for key, entry in configs.items()
            if self.takes(key, entry) and entry.value is not None
        }


def compare(
    source: Mapping[str, ConfigEntry],
    target: Mapping[str, ConfigEntry],
    ours: Mapping[str, str],
    rule: CopyRule,
) -> Iterator[Difference]:
    """All differences by key; `ours` is what this link has set at the target."""
    for key in sorted(source.keys() | target.keys()):
        found = _compare(key, source.get(key), target.get(key), ours.get(key), rule)
        if found is not None:
            yield found


def _compare(
    key: str, here: ConfigEntry | None, there: ConfigEntry | None, set_by_us: str | None, rule: CopyRule
) -> Difference | None:
    value = here.value if here is not None else None
    value_there = there.value if there is not None else None
    if (here or there) is None or any(entry.is_sensitive for entry in (here, there) if entry is not None):
        return None
    if here is not None and rule.takes(key, here):
        if there is None:
            why = "the target does not know this setting"
            return Difference(key, value, None, Owner.LINK, Action.NONE, why)
        if value == value_there:
            return None
        why = "set at the source" if here.source is ConfigSource.TOPIC else "default of the source"
        return Difference(key, value, value_there, Owner.LINK, Action.SET, why)
    if there is None:
        return None
    return _not_copied(key, here, there, set_by_us, rule)


def _not_copied(
    key: str, here: ConfigEntry | None, there: ConfigEntry, set_by_us: str | None, rule: CopyRule
) -> Difference | None:
    """A key that the link does not (or no longer) copy from the source."""
    value = here.value if here is not None else None
    set_there = there.source is ConfigSource.TOPIC
    excluded = rule.exclude.matches(key)
    if set_there and set_by_us is not None and not excluded and there.value == set_by_us:
        why = "the link had set it, and the source has it no more"
        return Difference(key, value, there.value, Owner.LINK, Action.TAKE_BACK, why)
    if value == there.value:
        return None
    if excluded:
        why = "named by config.properties.exclude"
    elif set_there and set_by_us is not None:
        why = "the link had set it, but it was changed at the target since"
    elif set_there:
        why = "set at the target, not by this link"
    elif here is None:
        return None
    else:
        why = "set on neither topic: each cluster has its own default"
    return Difference(key, value, there.value, Owner.TARGET, Action.NONE, why)
