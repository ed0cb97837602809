"""Names at the target: too long, in each other's way, or taken by somebody else; and links that circle.

Owns these rules, pure. Kafka keeps topics apart whose names differ in `.` and `_` only, but not their
metrics, and refuses the second one.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.types import uuid_to_text
from replicator.filters import INTERNAL, NO_HEARTBEATS, came_from
from replicator.mirrormaker.takeover import StillRunningError
from replicator.naming import HEARTBEATS
from replicator.preflight.facts import Facts
from replicator.preflight.findings import Finding, Level, named, together

LONGEST = 249
CHECK = "names"
SHORTER = (
    "use a shorter alias, naming: identity (in a file of MirrorMaker 2: replication.policy.class ="
    " …IdentityReplicationPolicy), or exclude them"
)


def names(facts: Facts) -> Iterator[Finding]:
    """Of all mirrors."""
    alias = facts.target.alias
    long = tuple(sorted(name for name, there in facts.mirrors.items() if len(there) > LONGEST))
    if long:
        yield Finding(
            Level.ERROR,
            CHECK,
            alias,
            f"with the link's prefix these are longer than {LONGEST} characters: no topic can be called so",
            SHORTER,
            long,
        )
    yield from _alike(facts)
    yield from _taken(facts)


def _alike(facts: Facts) -> Iterator[Finding]:
    by_metric: dict[str, set[str]] = {}
    for name in (*facts.mirrors.values(), *facts.target.topics):
        by_metric.setdefault(name.replace(".", "_"), set()).add(name)
    mirrors = set(facts.mirrors.values())
    for alike in by_metric.values():
        if len(alike) > 1 and alike & mirrors - facts.target.topics.keys():
            yield Finding(
                Level.ERROR,
                CHECK,
                facts.target.alias,
                "names that differ in '.' and '_' only: the target refuses the second topic",
                "exclude one of them, or choose another separator or alias",
                tuple(sorted(alike)),
            )


def _taken(facts: Facts) -> Iterator[Finding]:
    others: dict[tuple[str, str], list[str]] = {}
    gathered: dict[tuple[str, str], list[str]] = {}
    replaced: dict[tuple[str, str], list[str]] = {}
    foreign: list[str] = []
    for source, name in facts.mirrors.items():
        there = facts.target.topics.get(name)
        other = facts.other_links.get(name)
        if other in facts.gathering and _compacted(facts, source):
            what = (
                f"link {other} writes these compacted topics too: of a key that both have the last one stays"
            )
            to_do = "keep the sources' keys apart, or exclude them from one of the two links"
            replaced.setdefault((what, to_do), []).append(name)
        elif other in facts.gathering:
            what = f"link {other} is declared to write these topics too"
            to_do = (
                "nothing, where they are meant to be one: each source's records come in their order, mixed"
            )
            gathered.setdefault((what, to_do), []).append(name)
        elif other is not None:
            what = f"link {other} writes these topics too: their records would be mixed"
            to_do = (
                "exclude them from one of the two links, or declare both in one file with naming: identity if"
                " they are meant to be one"
            )
            others.setdefault((what, to_do), []).append(name)
        elif there is not None and facts.own_mirrors.get(name) not in ("", uuid_to_text(there.topic_id)):
            foreign.append(name)
    yield from together(Level.ERROR, CHECK, facts.target.alias, others)
    yield from together(Level.WARNING, CHECK, facts.target.alias, replaced)
    yield from together(Level.OK, CHECK, facts.target.alias, gathered)
    if foreign:
        yield _foreign(facts, tuple(foreign))


def _foreign(facts: Facts, topics: tuple[str, ...]) -> Finding:
    """They are MirrorMaker 2's where the link goes on behind it: nobody is to delete those."""
    told, alias = facts.settings.take_over, facts.target.alias
    begun = bool(facts.own_mirrors)
    if told is not None and not begun and told.offsets_topic in facts.target.topics:
        what = f"the link goes on behind what MirrorMaker 2 has copied of these, by {told.offsets_topic}"
        to_do = f"stop MirrorMaker 2: the link waits as long as its group {told.group} has members"
        if told.status_topic:
            to_do += f" and {told.status_topic} does not say that {told.connector} is stopped"
        return Finding(Level.OK, CHECK, alias, what, to_do, topics)
    what = "these topics exist and were not made by this link; what they hold stays before the copy"
    to_do = "make sure that nobody else writes them; delete them first for a copy from the start"
    if told is not None and not begun:
        to_do = (
            f"where MirrorMaker 2 has filled them, say where its progress is ({alias}.offset.storage.topic;"
            f" {told.offsets_topic} is not there), or all is copied again; else {to_do}"
        )
    return Finding(Level.WARNING, CHECK, alias, what, to_do, topics)


def _compacted(facts: Facts, topic: str) -> bool:
    policy = facts.source.configs.get(topic, {}).get("cleanup.policy")
    return policy is not None and "compact" in (policy.value or "")


def mirrormaker(facts: Facts) -> Iterator[Finding]:
    """Two copiers write everything twice. At its first start, and where it was handed back, a link waits for
    the other one, else not."""
    found, begun = facts.mirrormaker, bool(facts.own_mirrors) and not facts.handed_back
    if found is not None:
        runs = isinstance(found, StillRunningError)
        to_do = found.to_do
        if runs and begun:
            to_do = "stop it: it writes again what this link has copied, and this link what it copies now"
        level = Level.ERROR if runs == begun else Level.WARNING
        yield Finding(level, CHECK, facts.target.alias, found.what, to_do)


def circles(facts: Facts) -> Iterator[Finding]:
    """Of links with identical names whose records do not carry where they have been."""
    for circle in facts.circles:
        what, _, to_do = circle.partition("; ")
        yield Finding(Level.ERROR, "cycles", facts.settings.name, what, to_do)


def selection(facts: Facts) -> Iterator[Finding]:
    """Whether the patterns find anything."""
    on = facts.settings
    if not any(name != HEARTBEATS for name in facts.mirrors):
        yield _nothing(facts)
    if not on.sync_group_offsets:
        yield Finding(
            Level.WARNING,
            "groups",
            facts.source.alias,
            "sync_group_offsets is off: consumers would not go on where they were",
            "set sync_group_offsets: true (in a file of MirrorMaker 2: sync.group.offsets.enabled = true)",
        )
    elif not facts.groups:
        yield Finding(
            Level.WARNING,
            "groups",
            facts.source.alias,
            "no consumer group of the source matches: no offsets are synced",
            "see groups and groups_exclude of the link, and DESCRIBE on the groups for its user",
        )


def _nothing(facts: Facts) -> Finding:
    """Patterns that leave out what could be copied are a slip. A source that has nothing of its own is none:
    so begins the way back of a pair. What the link's user may not see looks like that, too."""
    alias, reasons = facts.source.alias, set(facts.found.refused.values())
    why = f": {named(sorted(reasons))}" if reasons else ""
    if reasons <= {INTERNAL, NO_HEARTBEATS, came_from(facts.target.alias)}:
        return Finding(
            Level.WARNING,
            "topics",
            alias,
            f"it has no topic to copy{why}",
            "nothing, if that is so: topics are not seen on which the link's user has no DESCRIBE",
        )
    return Finding(
        Level.ERROR,
        "topics",
        alias,
        f"none of its {len(facts.found.refused)} topics is copied{why}",
        "see topics and topics_exclude of the link, and DESCRIBE on the topics for its user",
    )
