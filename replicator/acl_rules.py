"""Which ACLs of the source hold at the target, and in what form: MirrorMaker 2's rule, carried further.

Owns translating and comparing, pure. As MM2 does, writing is withheld from the mirror (ALLOW WRITE is left
out, ALLOW ALL becomes ALLOW READ) and DENY stays as it is. Beyond MM2 (its KAFKA-15119 and the literal
`A.*` that no topic matches): prefixed patterns and groups are taken along, `*` becomes what covers the link's
topics and no other, and what was revoked at the source is revoked here if this link had granted it: of the
same cluster, a few at a time (DESIGN §4, I9), never because a source shows nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.client import Acl, AclOperation, AclPattern, AclPermission, AclResource
from replicator.naming import Naming

_ANY_NAME = "*"
WRITE_WITHHELD = "writing is withheld from a mirror"
NOT_OURS = "no topic or group of this link matches it"
OTHER_KIND = "only ACLs of topics and groups are taken along"

REVOKED_AT_ONCE = 10
"""So many may always go in one pass, and a quarter of what the link has granted."""


class Granted(NamedTuple):
    """Why the link has granted something: the ACLs that it stands for, and the id of their cluster."""

    cluster: str
    origins: frozenset[Acl]


@dataclass(frozen=True, slots=True)
class Scope:
    """What the link copies: source topics and their names at the target, groups, and who may be one."""

    naming: Naming
    topics: Mapping[str, str]
    groups: Collection[str]
    accepts_group: Callable[[str], bool]
    accepts_topic: Callable[[str], bool]


@dataclass(slots=True)
class Translated:
    """`wanted`: ACLs that should hold at the target, each with the ones at the source that it stands for."""

    wanted: dict[Acl, set[Acl]] = field(default_factory=dict)
    left_out: dict[Acl, str] = field(default_factory=dict)
    withheld: dict[Acl, set[Acl]] = field(default_factory=dict)
    """As `wanted`: what writers would get at the target (`writers`)."""


@dataclass(slots=True)
class Plan:
    """What to do at the target. `owned` is what the link will have granted then."""

    create: list[Acl] = field(default_factory=list)
    revoke: list[Acl] = field(default_factory=list)
    owned: dict[Acl, Granted] = field(default_factory=dict)
    foreign: list[Acl] = field(default_factory=list)
    """Wanted ones that somebody else had granted already: they are never revoked."""
    shared: list[Acl] = field(default_factory=list)
    """Not the link's any more, and another link's still: left to that one."""
    held: list[Acl] = field(default_factory=list)
    """To be revoked, and left alone until somebody allows it: `held_because`."""
    held_because: str | None = None


def translate(source: Collection[Acl], scope: Scope) -> Translated:
    """The ACLs of the source as they should be at the target."""
    found = Translated()
    for acl in sorted(source):
        names = _names(acl, scope)
        operation = _operation(acl)
        if _writes(acl):
            for pattern, name in names:
                found.withheld.setdefault(acl._replace(pattern=pattern, name=name), set()).add(acl)
        if acl.resource not in (AclResource.TOPIC, AclResource.GROUP):
            found.left_out[acl] = OTHER_KIND
        elif not names:
            found.left_out[acl] = NOT_OURS
        elif operation is None:
            found.left_out[acl] = WRITE_WITHHELD
        else:
            for pattern, name in names:
                there = acl._replace(pattern=pattern, name=name, operation=operation)
                found.wanted.setdefault(there, set()).add(acl)
    return found


def plan(
    translated: Translated,
    source: Collection[Acl],
    target: Collection[Acl],
    owned: Mapping[Acl, Granted],
    cluster: str,
    at_most: int | None = None,
    others: Collection[Acl] = (),
) -> Plan:
    """Compares. An owned ACL goes only when all its origins are gone from the cluster that had them: a topic
    that is not seen for a moment, or a pattern of the link that was changed, takes nobody's rights away, nor
    does another cluster with the source's alias. `at_most`: somebody allows so many to go at once.
    `others`: what other links into the target own. Both own what both need, and the last one revokes it."""
    made = Plan(owned=dict(owned))
    for acl, origins in sorted(translated.wanted.items(), key=lambda row: _denies_first(row[0])):
        if acl in target and acl not in owned and acl not in others:
            made.foreign.append(acl)
            continue
        if acl not in target:
            made.create.append(acl)
        made.owned[acl] = Granted(cluster, frozenset(origins) | _left(owned.get(acl), source, cluster))
    for acl, granted in sorted(owned.items(), key=lambda row: _denies_first(row[0]), reverse=True):
        if acl in translated.wanted or granted.cluster != cluster:
            continue
        left = _left(granted, source, cluster)
        if left:
            made.owned[acl] = Granted(cluster, left)
        elif acl in others:
            made.shared.append(acl)
        else:
            made.revoke.append(acl)
    made.held_because = _held_because(len(made.revoke), len(owned), bool(source), at_most)
    if made.held_because is not None:
        made.held, made.revoke = made.revoke, []
    for acl in (*made.revoke, *made.shared):
        del made.owned[acl]
    return made


def still_withheld(
    found: Mapping[Acl, Collection[Acl]], before: Mapping[Acl, Granted], source: Collection[Acl], cluster: str
) -> dict[Acl, Granted]:
    """What to note as withheld: what is found now, and what a topic that is not seen for a moment had. A
    source without any ACL (it may have lost them) changes nothing."""
    if not source:
        return dict(before)
    kept = {
        acl: granted
        for acl, granted in before.items()
        if granted.cluster == cluster and granted.origins.intersection(source)
    }
    return kept | {acl: Granted(cluster, frozenset(origins)) for acl, origins in found.items()}


def _left(granted: Granted | None, source: Collection[Acl], cluster: str) -> frozenset[Acl]:
    """Origins that are still there."""
    if granted is None or granted.cluster != cluster:
        return frozenset()
    return granted.origins.intersection(source)


def _held_because(going: int, owned: int, source_has_any: bool, at_most: int | None) -> str | None:
    if not going or (at_most is not None and going <= at_most):
        return None
    allow = f"if that is meant, set acls_revoke_at_most: {going}"
    if not source_has_any:
        return f"the source shows no ACLs at all, {going} would be revoked: {allow}"
    limit = max(REVOKED_AT_ONCE, owned // 4) if at_most is None else at_most
    if going > limit:
        return (
            f"{going} of {owned} ACLs granted by the link would be revoked at once (limit {limit}): {allow}"
        )
    return None


def _operation(acl: Acl) -> AclOperation | None:
    """MM2's rule for topics; None: left out. What may be done with a group stays as it is."""
    if acl.resource is AclResource.TOPIC and acl.permission is AclPermission.ALLOW:
        if acl.operation is AclOperation.WRITE:
            return None
        if acl.operation is AclOperation.ALL:
            return AclOperation.READ
    return acl.operation


def _writes(acl: Acl) -> bool:
    writing = acl.operation in (AclOperation.WRITE, AclOperation.ALL)
    return writing and acl.resource is AclResource.TOPIC and acl.permission is AclPermission.ALLOW


def _names(acl: Acl, scope: Scope) -> list[tuple[AclPattern, str]]:
    if acl.resource is AclResource.TOPIC:
        return _topics(acl, scope)
    return _groups(acl, scope) if acl.resource is AclResource.GROUP else []


def _denies_first(acl: Acl) -> tuple[AclPermission, Acl]:
    """So that nobody is allowed for a moment, or after a failure for longer, what is denied."""
    return acl.permission, acl


_ANY_REST = "0-a"


def _topics(acl: Acl, scope: Scope) -> list[tuple[AclPattern, str]]:
    """What is denied holds before its topic is there, where the name can only be the link's: an ALLOW that
    covers more would let people read until the next pass."""
    own_names = not scope.naming.identity
    ahead = acl.permission is AclPermission.DENY and own_names
    everything = acl.pattern is AclPattern.LITERAL and acl.name == _ANY_NAME
    if everything and own_names:
        return [(AclPattern.PREFIXED, scope.naming.at_target(""))] if scope.topics else []
    if everything:  # `*` at the target would cover topics that no source topic stands for
        return [(AclPattern.LITERAL, name) for name in scope.topics.values()]
    if acl.pattern is AclPattern.PREFIXED:
        ours = {name: there for name, there in scope.topics.items() if name.startswith(acl.name)}
        prefix = scope.naming.at_target(acl.name)
        if own_names:
            return [(acl.pattern, prefix)] if ours or ahead else []
        rests = {name[len(acl.name) :]: there for name, there in ours.items()}
        rests[_ANY_REST] = scope.naming.at_target(acl.name + _ANY_REST)  # `a=b` says nothing about `a…`
        if all(there == prefix + rest for rest, there in rests.items()):
            return [(acl.pattern, prefix)] if ours else []
        return [(AclPattern.LITERAL, there) for there in ours.values()]  # renamed: no prefix says the same
    there = scope.topics.get(acl.name)
    if there is None and ahead and scope.accepts_topic(acl.name):
        there = scope.naming.at_target(acl.name)
    return [(acl.pattern, there)] if there is not None else []


def _groups(acl: Acl, scope: Scope) -> list[tuple[AclPattern, str]]:
    """Groups keep their names; `*` would cover the target's own groups too."""
    if acl.pattern is AclPattern.LITERAL and acl.name == _ANY_NAME:
        return [(AclPattern.LITERAL, name) for name in scope.groups]
    if acl.pattern is AclPattern.PREFIXED:
        ours = scope.accepts_group(acl.name) or any(name.startswith(acl.name) for name in scope.groups)
    else:
        ours = scope.accepts_group(acl.name)
    return [(acl.pattern, acl.name)] if ours else []
