"""How a link remembers the ACLs that it has granted: rows of its progress topic, one for each resource.

Owns keys and values of these rows and what changed between two states. Who may be granted what is decided in
`acl_rules`. A row that cannot be read is not known: nothing of it is ever revoked.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from protocol.client import Acl, AclOperation, AclPattern, AclPermission, AclResource

_log = logging.getLogger("isthmus.replicator")

PREFIX = "acls/"


def rows_of(before: Mapping[Acl, Acl], after: Mapping[Acl, Acl]) -> list[tuple[bytes, bytes | None]]:
    """The rows to write when what the link has granted changes; None: nothing is left of that resource."""
    old, new = _by_resource(before), _by_resource(after)
    return [
        (key.encode(), _value(new[key]) if key in new else None)
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def read_row(value: bytes | None) -> dict[Acl, Acl]:
    """What `rows_of` wrote under one key: ACLs at the target and their origins."""
    try:
        pairs = json.loads(value) if value else []
        return {_acl(there): _acl(origin) for there, origin in pairs}
    except (TypeError, ValueError) as error:
        _log.error("ACLs that the link has granted cannot be read: %r", error)
        return {}


def _by_resource(owned: Mapping[Acl, Acl]) -> dict[str, dict[Acl, Acl]]:
    found: dict[str, dict[Acl, Acl]] = {}
    for acl, origin in owned.items():
        key = f"{PREFIX}{acl.resource.name}/{acl.pattern.name}/{acl.name}"
        found.setdefault(key, {})[acl] = origin
    return found


def _value(pairs: Mapping[Acl, Acl]) -> bytes:
    return json.dumps([[list(there), list(origin)] for there, origin in sorted(pairs.items())]).encode()


def _acl(fields: list[object]) -> Acl:
    resource, pattern, name, principal, host, operation, permission = fields
    return Acl(
        AclResource(int(str(resource))),
        AclPattern(int(str(pattern))),
        str(name),
        str(principal),
        str(host),
        AclOperation(int(str(operation))),
        AclPermission(int(str(permission))),
    )
