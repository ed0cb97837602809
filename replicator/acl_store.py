"""How a link remembers the ACLs that it has granted: rows of its progress topic, one for each resource.

Owns keys and values of these rows and what changed between two states. Who may be granted what is decided in
`acl_rules`. A row that cannot be read is not known: nothing of it is ever revoked.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from protocol.client import Acl, AclOperation, AclPattern, AclPermission, AclResource
from replicator.acl_rules import Granted

_log = logging.getLogger("isthmus.replicator")

PREFIX = "acls/"
WITHHELD = "withheld/"
"""What writers at the source have and the link keeps from them at the target."""
WRITERS = "writers/"
"""What they were granted all the same, after a fail-over."""
PREFIXES = (PREFIX.encode(), WITHHELD.encode(), WRITERS.encode())


def rows_of(
    before: Mapping[Acl, Granted], after: Mapping[Acl, Granted], prefix: str = PREFIX
) -> list[tuple[bytes, bytes | None]]:
    """The rows to write when what the link has granted changes; None: nothing is left of that resource."""
    old, new = _by_resource(before, prefix), _by_resource(after, prefix)
    return [
        (key.encode(), _value(new[key]) if key in new else None)
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def read_row(value: bytes | None) -> dict[Acl, Granted]:
    """What `rows_of` wrote under one key: ACLs at the target and why they were granted."""
    try:
        grants = json.loads(value) if value else []
        return {
            _acl(there): Granted(str(cluster), frozenset(map(_acl, origins)))
            for there, cluster, origins in grants
        }
    except (TypeError, ValueError) as error:
        _log.error("ACLs that the link has granted cannot be read: %r", error)
        return {}


def _by_resource(owned: Mapping[Acl, Granted], prefix: str) -> dict[str, dict[Acl, Granted]]:
    found: dict[str, dict[Acl, Granted]] = {}
    for acl, granted in owned.items():
        key = f"{prefix}{acl.resource.name}/{acl.pattern.name}/{acl.name}"
        found.setdefault(key, {})[acl] = granted
    return found


def _value(grants: Mapping[Acl, Granted]) -> bytes:
    rows = [
        [list(there), granted.cluster, [list(origin) for origin in sorted(granted.origins)]]
        for there, granted in sorted(grants.items())
    ]
    return json.dumps(rows).encode()


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
