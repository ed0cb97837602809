"""WRITE at the mirrors for those who may write at the source: granted after a fail-over, taken back after it.

Owns granting what the link has withheld (it is noted at the target while the link runs, so the source may be
gone by then) and revoking what was granted so and nothing else. Both may be asked for again. Whether the link
is stopped, and who writes where, is its operator's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from protocol.client import Acl, AclResource, ClusterClient
from protocol.errors import KafkaError
from replicator.piecemeal import piecemeal
from replicator.progress import ProgressStore


@dataclass(slots=True)
class WritersResult:
    """`done`: granted or revoked (or would be, with a dry run); `left`: was so already; `refused`: why."""

    done: list[Acl] = field(default_factory=list)
    left: list[Acl] = field(default_factory=list)
    refused: dict[Acl, str] = field(default_factory=dict)
    known: int = 0
    """How many ACLs the link has noted as withheld."""

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "done": list(map(str, self.done)),
            "left_alone": list(map(str, self.left)),
            "refused": {str(acl): why for acl, why in self.refused.items()},
            "withheld_by_the_link": self.known,
        }


async def grant_writers(target: ClusterClient, store: ProgressStore, *, dry_run: bool) -> WritersResult:
    """Grants at the target. What is there already is somebody else's, and stays when writers are revoked.
    Raises ProtocolError."""
    progress = await store.refresh()
    withheld, granted = progress.withheld(), progress.writers()
    there = await target.describe_acls(AclResource.TOPIC)
    new = [acl for acl in sorted(withheld) if acl not in there]
    result = WritersResult(left=[acl for acl in sorted(withheld) if acl in there], known=len(withheld))
    if dry_run:
        result.done = new
        return result
    noted = {**granted, **{acl: withheld[acl] for acl in new}}
    await store.save_writers(granted, noted)  # first, so that nothing is granted that is not known to be ours
    result.done, refused = await _each(target.create_acls, new)
    result.refused = {acl: str(error) for acl, error in refused.items()}
    never = {acl for acl, error in refused.items() if not error.retriable} - granted.keys()
    await store.save_writers(noted, {acl: why for acl, why in noted.items() if acl not in never})
    return result


async def revoke_writers(target: ClusterClient, store: ProgressStore, *, dry_run: bool) -> WritersResult:
    """Takes back what `grant_writers` has granted. Raises ProtocolError."""
    progress = await store.refresh()
    granted = progress.writers()
    result = WritersResult(known=len(progress.withheld()))
    there = await target.describe_acls(AclResource.TOPIC)
    result.left = [acl for acl in sorted(granted) if acl not in there]
    todo = [acl for acl in sorted(granted) if acl in there]
    if dry_run:
        result.done = todo
        return result
    result.done, refused = await _each(target.delete_acls, todo)
    result.refused = {acl: str(error) for acl, error in refused.items()}
    await store.save_writers(granted, {acl: granted[acl] for acl in result.refused})
    return result


async def _each(
    call: Callable[[list[Acl]], Awaitable[None]], acls: Collection[Acl]
) -> tuple[list[Acl], dict[Acl, KafkaError]]:
    async def ask(part: list[Acl]) -> Mapping[Acl, None]:
        await call(part)
        return dict.fromkeys(part)

    done, refused = await piecemeal(ask, acls)
    return sorted(done), dict(sorted(refused.items()))
