"""Whether the link's user may do all that the link does.

Owns the list of what each job needs on each side. Brokers tell it themselves (KIP-430), nothing is tried out
except making topics, which CreateTopics can validate without doing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol.client import AclOperation as Op
from replicator.preflight.facts import Facts, Rights, Side
from replicator.preflight.findings import Finding, Level, grant, together

CHECK = "rights"


def rights(facts: Facts) -> Iterator[Finding]:
    """What is missing, by side, operation and resource."""
    on, source, target = facts.settings, facts.source, facts.target
    mirrors = list(facts.mirrors.values())  # whoever makes a topic has no right on it by that
    reading = [Op.READ, Op.DESCRIBE]
    writing = [Op.WRITE, Op.READ, Op.DESCRIBE]  # what a killed link left behind is read again
    yield from _topics(source, facts.mirrors, reading, "copying", Level.ERROR)
    yield from _topics(target, mirrors, writing, "copying", Level.ERROR)
    if on.sync_topic_configs:
        what = "syncing settings of topics"
        yield from _topics(source, facts.mirrors, [Op.DESCRIBE_CONFIGS], what, Level.ERROR)
        changing = [Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS, Op.ALTER]
        yield from _topics(target, mirrors, changing, f"{what} and partitions", Level.ERROR)
    if on.sync_group_offsets:
        yield from _groups(source, facts.groups, [Op.DESCRIBE])
        deleting = [Op.DELETE] if on.groups_on_delete == "delete" else []
        yield from _groups(target, facts.groups, [Op.DESCRIBE, Op.READ, *deleting])
    if on.sync_topic_acls:
        yield from _cluster(source, [Op.DESCRIBE], "listing ACLs")
        needed = [Op.DESCRIBE] if on.acls_report_only else [Op.DESCRIBE, Op.ALTER]
        yield from _cluster(target, needed, "granting and revoking ACLs")
    yield from _workers(facts)
    yield from _producer(facts)
    for side in (source, target):
        for what, words in side.refused.items():
            yield Finding(
                Level.WARNING,
                CHECK,
                side.alias,
                f"{what} cannot be read: {words}",
                "what depends on it is unknown",
            )


def _topics(
    side: Side, names: Iterable[str], operations: list[Op], job: str, level: Level
) -> Iterator[Finding]:
    lacking: dict[tuple[str, str], list[str]] = {}
    for name in names:
        missing = side.topic_rights.get(name, Rights()).lacks(*operations)
        if missing:
            said = (
                f"{job} needs {', '.join(missing)} on these topics",
                grant(missing, "--topic <each>"),
            )
            lacking.setdefault(said, []).append(name)
    yield from together(level, CHECK, side.alias, lacking)


def _groups(side: Side, names: list[str], operations: list[Op]) -> Iterator[Finding]:
    lacking: dict[tuple[str, str], list[str]] = {}
    for name in names:
        missing = side.group_rights.get(name, Rights()).lacks(*operations)
        if missing:
            said = (
                f"syncing offsets needs {', '.join(missing)} on these groups",
                grant(missing, "--group <each>"),
            )
            lacking.setdefault(said, []).append(name)
    yield from together(Level.ERROR, CHECK, side.alias, lacking)


def _workers(facts: Facts) -> Iterator[Finding]:
    """Without them a process copies alone, as if `shared` were off."""
    on, side = facts.settings, facts.target
    missing = side.group_rights.get(on.workers_group, Rights()).lacks(Op.READ, Op.DESCRIBE)
    if on.shared and missing:
        yield Finding(
            Level.WARNING,
            CHECK,
            side.alias,
            f"sharing the link between processes needs {', '.join(missing)} on the group of its workers:"
            " without it one process copies alone",
            f"{grant(missing, f'--group {on.workers_group}')}; or run one process only",
            (on.workers_group,),
        )


def _producer(facts: Facts) -> Iterator[Finding]:
    if facts.no_idempotence:
        yield Finding(
            Level.ERROR,
            CHECK,
            facts.target.alias,
            f"the link may have no idempotent producer: {facts.no_idempotence}",
            "grant the link's user WRITE on the mirrors (a prefix is enough), or, before Kafka 2.8,"
            " IDEMPOTENT_WRITE on the CLUSTER",
        )


def _cluster(side: Side, operations: list[Op], job: str) -> Iterator[Finding]:
    missing = side.cluster_rights.lacks(*operations)
    if missing:
        yield Finding(
            Level.WARNING,
            CHECK,
            side.alias,
            f"{job} needs {', '.join(missing)} on the CLUSTER",
            f"{grant(missing, '--cluster')}, or set sync_topic_acls: false (in a file of MirrorMaker 2:"
            " sync.topic.acls.enabled = false)",
        )
