"""Which ACLs of the source hold at the target, and in what form: MirrorMaker 2's rule, carried further.

Owns translating and comparing, pure. As MM2 does, writing is withheld from the mirror (ALLOW WRITE is left
out, ALLOW ALL becomes ALLOW READ) and DENY stays as it is. Beyond MM2 (its KAFKA-15119 and the literal
`A.*` that no topic matches): prefixed patterns and groups are taken along, `*` becomes what covers the link's
topics and no other, and what was revoked at the source is revoked here if this link had granted it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from protocol.client import Acl, AclOperation, AclPattern, AclPermission, AclResource
from replicator.naming import Naming

_ANY_NAME = "*"
WRITE_WITHHELD = "writing is withheld from a mirror"
NOT_OURS = "no topic or group of this link matches it"
OTHER_KIND = "only ACLs of topics and groups are taken along"


@dataclass(frozen=True, slots=True)
class Scope:
    """What the link copies: source topics and their names at the target, groups, and who may be one."""

    naming: Naming
    topics: Mapping[str, str]
    groups: Collection[str]
    accepts_group: Callable[[str], bool]


@dataclass(slots=True)
class Translated:
    """`wanted`: ACLs that should hold at the target, each with the ones at the source that it stands for."""

    wanted: dict[Acl, set[Acl]] = field(default_factory=dict)
    left_out: dict[Acl, str] = field(default_factory=dict)


@dataclass(slots=True)
class Plan:
    """What to do at the target. `owned` is what the link will have granted then, each with its origin."""

    create: list[Acl] = field(default_factory=list)
    revoke: list[Acl] = field(default_factory=list)
    owned: dict[Acl, Acl] = field(default_factory=dict)
    foreign: int = 0
    """Wanted ones that somebody else had granted already: they are never revoked."""


def translate(source: Collection[Acl], scope: Scope) -> Translated:
    """The ACLs of the source as they should be at the target."""
    found = Translated()
    for acl in sorted(source):
        names = _names(acl, scope)
        operation = _operation(acl)
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
    translated: Translated, source: Collection[Acl], target: Collection[Acl], owned: Mapping[Acl, Acl]
) -> Plan:
    """Compares. An owned ACL goes only when its origin is gone from the source: a topic that is not seen for
    a moment, or a pattern of the link that was changed, takes nobody's rights away."""
    made = Plan(owned=dict(owned))
    for acl, origins in sorted(translated.wanted.items()):
        if acl not in target:
            made.create.append(acl)
            made.owned[acl] = min(origins)
        elif acl not in owned:
            made.foreign += 1
        elif owned[acl] not in origins:
            made.owned[acl] = min(origins)
    for acl, origin in sorted(owned.items()):
        if acl not in translated.wanted and origin not in source:
            made.revoke.append(acl)
            del made.owned[acl]
    return made


def _operation(acl: Acl) -> AclOperation | None:
    """MM2's rule for topics; None: left out. What may be done with a group stays as it is."""
    if acl.resource is AclResource.TOPIC and acl.permission is AclPermission.ALLOW:
        if acl.operation is AclOperation.WRITE:
            return None
        if acl.operation is AclOperation.ALL:
            return AclOperation.READ
    return acl.operation


def _names(acl: Acl, scope: Scope) -> list[tuple[AclPattern, str]]:
    if acl.resource is AclResource.TOPIC:
        return _topics(acl, scope)
    return _groups(acl, scope) if acl.resource is AclResource.GROUP else []


def _topics(acl: Acl, scope: Scope) -> list[tuple[AclPattern, str]]:
    everything = acl.pattern is AclPattern.LITERAL and acl.name == _ANY_NAME
    if everything and scope.topics and not scope.naming.identity:
        return [(AclPattern.PREFIXED, scope.naming.at_target(""))]
    if everything:  # `*` at the target would cover topics that no source topic stands for
        return [(AclPattern.LITERAL, name) for name in scope.topics.values()]
    if acl.pattern is AclPattern.PREFIXED:
        ours = {name: there for name, there in scope.topics.items() if name.startswith(acl.name)}
        prefix = scope.naming.at_target(acl.name)
        if all(there == prefix + name[len(acl.name) :] for name, there in ours.items()):
            return [(acl.pattern, prefix)] if ours else []
        return [(AclPattern.LITERAL, there) for there in ours.values()]  # renamed: no prefix says the same
    there = scope.topics.get(acl.name)
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
