"""Limits of the target that would refuse what the source has: sizes, times, replicas and room.

Owns these rules, pure. What counts is the value that the mirror will have: the source's where the link copies
the setting, else the target's own.
"""

from __future__ import annotations

from collections.abc import Iterator

from replicator.discovery import Wanted
from replicator.filters import PatternList
from replicator.preflight.facts import Facts
from replicator.preflight.findings import Finding, Level, together
from replicator.topic_settings import CopyRule

_OF_BROKER = {
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "min.insync.replicas": "min.insync.replicas",
}
"""What a topic's setting is called among a broker's, which are the defaults of topics."""
_ENOUGH = 0.9
_MORE_ROOM = "make room, copy fewer topics, or shorten their retention"


def mirror_value(facts: Facts, topic: Wanted, key: str) -> str | None:
    """The value that the mirror has, or will have once the link made or synced it. None: not known."""
    on = facts.settings
    here = facts.source.configs.get(topic.source.name, {}).get(key)
    rule = CopyRule(PatternList(on.config_properties_exclude), on.use_defaults_from == "source")
    if here is not None and rule.takes(key, here) and (on.sync_topic_configs or topic.target is None):
        return here.value
    there = facts.target.configs.get(topic.target_name, {}).get(key)
    if there is not None:
        return there.value
    return facts.target.defaults.get(_OF_BROKER.get(key, key))


def _as_it_is(facts: Facts) -> bool:
    """Whether mirrors take whatever the source has, as followers do: neither size nor time is looked at."""
    return facts.settings.offsets == "identical"


def _is_left_alone(facts: Facts, topic: Wanted, key: str) -> bool:
    """Whether the link is told not to set it at the target, whatever the source has."""
    on = facts.settings
    excluded = PatternList(on.config_properties_exclude).matches(key)
    return excluded or (topic.target is not None and not on.sync_topic_configs)


def sizes(facts: Facts) -> Iterator[Finding]:
    """Records that the source takes and the mirror refuses."""
    if _as_it_is(facts):
        return
    said: dict[tuple[str, str], list[str]] = {}
    for name, topic in facts.found.wanted.items():
        here = facts.source.configs.get(name, {}).get("max.message.bytes")
        there = mirror_value(facts, topic, "max.message.bytes")
        if here is None or here.value is None or there is None or int(here.value) <= int(there):
            continue
        what = f"batches may have {here.value} bytes at the source and {there} at the target"
        if _is_left_alone(facts, topic, "max.message.bytes"):
            to_do = (
                f"set max.message.bytes={here.value} on the mirrors, or let the link do it"
                " (config_properties_exclude, sync_topic_configs)"
            )
        else:
            to_do = (
                f"set max.message.bytes={here.value} on the source topics (the link copies it), "
                "or use_defaults_from: source, or message.max.bytes on the target's brokers"
            )
        said.setdefault((what, to_do), []).append(name)
    yield from together(Level.WARNING, "sizes", facts.target.alias, said)


def times(facts: Facts) -> Iterator[Finding]:
    """Records whose time the target refuses or replaces."""
    if _as_it_is(facts):
        return
    stamped: dict[tuple[str, str], list[str]] = {}
    for name, topic in facts.found.wanted.items():
        if mirror_value(facts, topic, "message.timestamp.type") == "LogAppendTime":
            what = "the target stamps its own time: look-ups by time and retention differ from the source"
            stamped.setdefault((what, "set message.timestamp.type=CreateTime there"), []).append(name)
    yield from together(Level.WARNING, "times", facts.target.alias, stamped)
    for spots, key, word in (
        (facts.too_old, "message.timestamp.before.max.ms", "older"),
        (facts.too_new, "message.timestamp.after.max.ms", "later"),
    ):
        if spots:
            yield Finding(
                Level.ERROR,
                "times",
                facts.target.alias,
                f"these partitions have records {word} than {key} of the target lets in: refused there",
                f"set a greater {key} on the source topics (the link copies it) or on the target's brokers",
                tuple(sorted(spots)),
            )


_SHORT_MS = 3_600_000


def tombstones(facts: Facts) -> Iterator[Finding]:
    """Tombstones that the source's cleaner drops before they were copied: their keys stay at the target."""
    said: dict[tuple[str, str], list[str]] = {}
    for name in facts.found.wanted:
        configs = facts.source.configs.get(name, {})
        policy, kept = configs.get("cleanup.policy"), configs.get("delete.retention.ms")
        if policy is None or kept is None or "compact" not in (policy.value or ""):
            continue
        if int(kept.value or _SHORT_MS) < _SHORT_MS:
            what = (
                f"tombstones are kept for {int(kept.value or 0) / 1000:g} s (delete.retention.ms): keys that"
                " are deleted while the link is away for longer stay at the target for ever"
            )
            to_do = "set delete.retention.ms at the source longer than the link may ever be away or behind"
            said.setdefault((what, to_do), []).append(name)
    yield from together(Level.WARNING, "tombstones", facts.source.alias, said)


def replicas(facts: Facts) -> Iterator[Finding]:
    """Replication factors that cannot be had, or with which nothing can be written."""
    brokers = len(facts.target.brokers)
    on = facts.settings
    for what, theirs, factor in (
        ("replication_factor", "replication.factor", on.replication_factor),
        (
            "internal_replication_factor",
            "offset.storage.replication.factor",
            on.internal_replication_factor,
        ),
    ):
        if factor > brokers:
            yield Finding(
                Level.ERROR,
                "replicas",
                facts.target.alias,
                f"{what} is {factor} and the target has {brokers} brokers",
                f"set {what} (in a file of MirrorMaker 2: {theirs}) to at most {brokers} (-1: the target's"
                " default) or add brokers",
            )
    never: dict[tuple[str, str], list[str]] = {}
    fragile: dict[tuple[str, str], list[str]] = {}
    for name, topic in facts.found.wanted.items():
        copies, configured = _factor(facts, topic), mirror_value(facts, topic, "min.insync.replicas")
        if copies is None or configured is None:
            continue
        need = facts.target.needed_in_sync(configured, copies)
        if need > copies:
            what = f"min.insync.replicas is {need} with {copies} replicas: nothing can be written"
            never.setdefault((what, _more_replicas(topic, need)), []).append(name)
        elif need == copies > 1:
            what = f"min.insync.replicas is {need} with {copies} replicas: copying stops with one broker away"
            fragile.setdefault((what, _more_replicas(topic, need + 1)), []).append(name)
    yield from together(Level.ERROR, "replicas", facts.target.alias, never)
    yield from together(Level.WARNING, "replicas", facts.target.alias, fragile)


def _more_replicas(topic: Wanted, factor: int) -> str:
    """A topic that is there keeps its replicas, whatever the link says."""
    if topic.target is None:
        return f"give the link replication_factor {factor} or more"
    return (
        f"give these topics {factor} replicas at the target (kafka-reassign-partitions), or lower their"
        " min.insync.replicas there"
    )


def _factor(facts: Facts, topic: Wanted) -> int | None:
    """Replicas that the mirror has or will have."""
    if topic.target is not None:
        return min((len(one.replicas) for one in topic.target.partitions.values()), default=None)
    if facts.settings.replication_factor != -1:
        return facts.settings.replication_factor
    default = facts.target.defaults.get("default.replication.factor")
    return None if default is None else int(default)


def room(facts: Facts) -> Iterator[Finding]:
    """Whether the target's disks hold what is still to be copied."""
    if facts.settings.start == "latest":
        return
    left = 0
    for name, topic in facts.found.wanted.items():
        missing = max(facts.source.sizes.get(name, 0) - facts.target.sizes.get(topic.target_name, 0), 0)
        left += missing * (_factor(facts, topic) or 1)
    if any(one.usable < 0 for one in facts.target.dirs) or not facts.target.dirs:
        if left:
            yield Finding(
                Level.WARNING,
                "room",
                facts.target.alias,
                f"{_size(left)} are to be copied, and its brokers do not tell how much room they have",
                "look at their disks",
            )
        return
    usable = sum(one.usable for one in facts.target.dirs)
    if left > usable * _ENOUGH:
        level = Level.ERROR if left > usable else Level.WARNING
        yield Finding(
            level,
            "room",
            facts.target.alias,
            f"{_size(left)} with all replicas are to be copied, and its disks have {_size(usable)} left",
            _MORE_ROOM,
        )
        return
    share = left / max(len(facts.target.brokers), 1)
    free: dict[int, int] = {}
    for one in facts.target.dirs:
        free[one.broker] = free.get(one.broker, 0) + one.usable
    for node, bytes_left in sorted(free.items()):
        if share > bytes_left * _ENOUGH:
            yield Finding(
                Level.WARNING,
                "room",
                facts.target.alias,
                f"{_size(left)} with all replicas are to be copied, evenly {_size(share)} to each of its"
                f" brokers: broker {node} has {_size(bytes_left)} left",
                _MORE_ROOM,
            )


def _size(count: float) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
