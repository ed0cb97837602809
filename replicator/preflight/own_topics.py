"""Whether the link may make, write and read the topics that it keeps for itself and for MM2's tools.

Owns which topics these are, on which side, and what each needs. Without the progress topic nothing is copied;
without one of the others the link copies and says for ever what fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from protocol.client import AclOperation as Op
from protocol.client import ClusterClient, NewTopic, RetryPolicy
from protocol.errors import ErrorCode, KafkaError
from replicator.naming import HEARTBEATS
from replicator.preflight.facts import Facts, Rights, Side
from replicator.preflight.findings import Finding, Level, grant
from replicator.settings import LinkSettings

_CHECK = "rights"
_SHORT = RetryPolicy(total_s=5, unknown_topic_s=0)
_WRITES = (Op.WRITE, Op.DESCRIBE)


@dataclass(frozen=True, slots=True)
class OwnTopic:
    """`instead`: what to set where the right shall not be given; empty: the link cannot go without it.
    `factor_set` names the setting of its replication factor, and MirrorMaker 2's."""

    name: str
    at_source: bool
    job: str
    operations: tuple[Op, ...]
    factor: int
    instead: str = ""
    factor_set: str = ""


def own_topics(on: LinkSettings) -> list[OwnTopic]:
    """All that the link makes unless they are there."""
    names, default = on.names(), on.internal_replication_factor

    def factor(said: int | None) -> int:
        return default if said is None else said

    found = [
        OwnTopic(on.progress_topic, False, "keeping the link's progress", (*_WRITES, Op.READ), default),
    ]
    if on.offsets == "identical":
        return found
    if on.emit_heartbeats:
        copies = factor(on.heartbeats_topic_replication_factor)
        for at_source in (True, False):
            off = "emit_heartbeats: false (emit.heartbeats.enabled)"
            job, set_by = "writing heartbeats", _factor_set("heartbeats")
            found.append(OwnTopic(HEARTBEATS, at_source, job, _WRITES, copies, off, set_by))
    if on.emit_offset_syncs:
        at_source = on.offset_syncs_topic_location == "source"
        off = "emit_offset_syncs: false (emit.offset-syncs.enabled)"
        if at_source:
            off = f"offset_syncs_topic_location: target (offset-syncs.topic.location), or {off}"
        copies, name = (
            factor(on.offset_syncs_topic_replication_factor),
            names.offset_syncs(at_source=at_source),
        )
        job, set_by = "writing offset syncs", _factor_set("offset-syncs")
        found.append(OwnTopic(name, at_source, job, _WRITES, copies, off, set_by))
    if on.emit_checkpoints:
        off = "emit_checkpoints: false (emit.checkpoints.enabled)"
        copies = factor(on.checkpoints_topic_replication_factor)
        job, set_by = "writing checkpoints", _factor_set("checkpoints")
        found.append(OwnTopic(names.checkpoints, False, job, _WRITES, copies, off, set_by))
    if on.on_refused == "dead_letter":
        job = "putting aside what the target refuses"
        found.append(OwnTopic(on.dead_letter_topic, False, job, _WRITES, default, "on_refused: stop"))
    return found


def _factor_set(topic: str) -> str:
    ours = topic.replace("-", "_")
    return f"{ours}_topic_replication_factor ({topic}.topic.replication.factor)"


async def ask_own_topics(source: ClusterClient, target: ClusterClient, facts: Facts) -> None:
    """Has both clusters validate, without doing it, making those that they do not show."""
    for one in own_topics(facts.settings):
        client, side = (source, facts.source) if one.at_source else (target, facts.target)
        if one.name in side.topics:
            continue
        topic = NewTopic(one.name, 1, one.factor, {"cleanup.policy": "compact"})
        try:
            await client.create_topics([topic], validate_only=True, retry=_SHORT)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                side.cannot_make[one.name] = error


def own_topics_rule(facts: Facts) -> Iterator[Finding]:
    """What is missing, by topic, with the command that grants it."""
    for one in own_topics(facts.settings):
        side = facts.source if one.at_source else facts.target
        level = Level.WARNING if one.instead else Level.ERROR
        instead = f", or set {one.instead}" if one.instead else ""
        missing = [Op[name] for name in side.topic_rights.get(one.name, Rights()).lacks(*one.operations)]
        refused = side.cannot_make.get(one.name)
        if refused is not None and refused.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            missing = [Op.CREATE, *missing]
        elif refused is not None and one.instead:  # of the progress topic `limits.replicas` tells
            what = f"{one.job} needs a topic that cannot be made: {refused}"
            mend = "mend what it names"
            if refused.code is ErrorCode.INVALID_REPLICATION_FACTOR and one.factor_set:
                mend = f"set {one.factor_set} to at most the number of brokers"
            yield Finding(level, _CHECK, side.alias, what, f"{mend}{instead}", (one.name,))
        yield from _unwritable(one, side, level, instead)
        if missing:
            yield Finding(
                level,
                _CHECK,
                side.alias,
                f"{one.job} needs {', '.join(op.name for op in missing)} on this topic",
                f"{grant([right.name for right in missing], f'--topic {one.name}')}{instead}",
                (one.name,),
            )
    yield from _taking_over(facts, facts.target)


def _unwritable(one: OwnTopic, side: Side, level: Level, instead: str) -> Iterator[Finding]:
    """Of a topic that is still to be made: the side's default of min.insync.replicas holds for it."""
    copies = one.factor if one.factor > 0 else int(side.defaults.get("default.replication.factor", "0"))
    need = side.needed_in_sync(side.defaults.get("min.insync.replicas", "1"), copies)
    if one.name not in side.topics and 0 < copies < need:
        setting = one.factor_set or "internal_replication_factor (offset.storage.replication.factor)"
        yield Finding(
            level,
            "replicas",
            side.alias,
            f"{one.job} needs a topic, which would have {copies} replicas with min.insync.replicas {need}:"
            " nothing can be written",
            f"set {setting} to {need} or more{instead}",
            (one.name,),
        )


def _taking_over(facts: Facts, side: Side) -> Iterator[Finding]:
    told = facts.settings.take_over
    if told is None:
        return
    needed = side.topic_rights.get(told.offsets_topic, Rights()).lacks(Op.READ, Op.DESCRIBE)
    if needed:
        waits = not facts.own_mirrors or facts.handed_back
        yield Finding(
            Level.ERROR if waits else Level.WARNING,
            _CHECK,
            side.alias,
            f"going on where MirrorMaker 2 stopped needs {', '.join(needed)} on the topic of its progress,"
            + (
                " whether that exists or not: the link does not start before it knows"
                if waits
                else " or what MirrorMaker 2 copies if it is started again is copied twice"
            ),
            grant(needed, f"--topic {told.offsets_topic}"),
            (told.offsets_topic,),
        )
