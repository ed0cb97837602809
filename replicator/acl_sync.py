"""ACLs of the source's topics and groups, kept alike at the target.

Owns the requests and how the sync stands; what should hold is decided in `acl_rules`. What the link is about
to grant is stored first, so that after a crash it is still known as the link's own and can be revoked.
A cluster without an authorizer, or one that does not let the link look, switches it off with a reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from protocol.client import Acl, AclResource, ClusterClient, NotSupportedError
from protocol.errors import ErrorCode, KafkaError
from replicator.acl_rules import (
    WRITE_WITHHELD,
    Granted,
    Plan,
    Scope,
    Translated,
    plan,
    still_withheld,
    translate,
)
from replicator.piecemeal import piecemeal

_log = logging.getLogger("isthmus.replicator")

_SHOWN = 100

Store = Callable[[Mapping[Acl, Granted], Mapping[Acl, Granted]], Awaitable[None]]
"""Stores what the link has granted: before, after."""
Owners = Callable[[], Awaitable[Collection[Acl]]]
"""What other links into the target have granted, or need as well."""


class AclSync:
    """One pass per `once`; `to_json` is for the status."""

    REPORT_ONLY: Final = "report only: nothing is changed at the target"

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        scope: Callable[[], Scope],
        store: Store,
        *,
        report_only: bool,
        revoke_at_most: int | None = None,
        note_withheld: Store | None = None,
        of_others: Owners | None = None,
    ) -> None:
        self._of_others = of_others
        self._note_withheld = note_withheld
        self.withheld: dict[Acl, Granted] = {}
        """What is noted at the target as kept from the source's writers."""
        self._source = source
        self._target = target
        self._scope = scope
        self._store = store
        self._report_only = report_only
        self._revoke_at_most = revoke_at_most
        self.owned: dict[Acl, Granted] = {}
        """What the link has granted at the target, and why."""
        self.reason: str | None = "not looked at yet"
        """Why nothing is synced; None: it is."""
        self._plan = Plan()
        self._withheld: list[Acl] = []
        self._refused: dict[Acl, str] = {}
        self._foreign: set[Acl] = set()
        """Of which is known that they are no other link's."""
        self._passing = asyncio.Lock()

    async def once(self) -> None:
        """Compares and, unless it only reports, grants and revokes. Raises ProtocolError when a cluster
        cannot be asked now."""
        async with self._passing:
            await self._once()

    async def _once(self) -> None:
        source = await self._described(self._source, "source")
        target = await self._described(self._target, "target") if source is not None else None
        if source is None or target is None:
            return
        translated = translate(source, self._scope())
        cluster = self._source.cluster_id or ""
        await self._withhold(translated, source, cluster)
        todo = await self._plan_of(translated, source, target, cluster)
        if todo.held_because is not None and todo.held_because != self._plan.held_because:
            _log.error("ACLs are not revoked: %s", todo.held_because)
        self._plan = todo
        self._withheld = [acl for acl, why in translated.left_out.items() if why == WRITE_WITHHELD]
        self._say(self.REPORT_ONLY if self._report_only else None)
        if self._report_only:
            return
        await self._note({**self.owned, **{a: why for a, why in todo.owned.items() if a in target}})
        kept = await self._apply(self._target.create_acls, todo.create, "granted", todo.owned)
        before = self.owned
        going = [*todo.revoke, *await self._left_alone(todo.shared)]
        stuck = await self._apply(self._target.delete_acls, going, "revoked", before)
        refused = {**kept, **stuck}
        self._refused = {acl: str(error) for acl, error in refused.items()}
        never = {acl for acl, error in kept.items() if not error.retriable}  # somebody else may grant it yet
        left = todo.owned.keys() - never | stuck.keys()
        await self._note({acl: why for acl, why in self.owned.items() if acl in left})
        self._plan = replace(todo, create=list(kept), revoke=list(stuck), owned=self.owned)

    async def _plan_of(
        self, translated: Translated, source: Collection[Acl], target: Collection[Acl], cluster: str
    ) -> Plan:
        """Other links are asked about only where that decides something: they are many rows to read."""

        def planned(others: Collection[Acl]) -> Plan:
            return plan(translated, source, target, self.owned, cluster, self._revoke_at_most, others)

        todo = planned(())
        if self._of_others is None:
            return todo
        if todo.revoke or todo.held or not self._foreign.issuperset(todo.foreign):
            todo = planned(await self._of_others())
        self._foreign = set(todo.foreign)
        return todo

    async def _left_alone(self, shared: Collection[Acl]) -> list[Acl]:
        """Gives up what is another link's too. Returns what that one has given up as well at this moment:
        each has left it to the other one, so somebody has to revoke it."""
        if not shared or self._of_others is None:
            return []
        await self._note({acl: why for acl, why in self.owned.items() if acl not in shared})
        others = await self._of_others()
        for acl in shared:
            if acl in others:
                _log.info("ACL not revoked, another link needs it: %s", acl)
        return [acl for acl in shared if acl not in others]

    async def _note(self, owned: dict[Acl, Granted]) -> None:
        """Stores what is the link's. What is to be revoked stays known until it is gone."""
        if owned != self.owned:
            await self._store(self.owned, owned)
            self.owned = owned

    async def _withhold(self, translated: Translated, source: Collection[Acl], cluster: str) -> None:
        """Kept at the target while the source is there to say it (`isthmus links grant-writers`)."""
        if self._note_withheld is None:
            return
        now = still_withheld(translated.withheld, self.withheld, source, cluster)
        if now != self.withheld:
            await self._note_withheld(self.withheld, now)
            self.withheld = now

    async def _described(self, client: ClusterClient, side: str) -> set[Acl] | None:
        """None, with the reason in `reason`, where there are no ACLs or the link may not see them."""
        try:
            return {
                acl
                for kind in (AclResource.TOPIC, AclResource.GROUP)
                for acl in await client.describe_acls(kind)
            }
        except NotSupportedError:
            self._say(f"the {side} cluster has no ACLs")
        except KafkaError as error:
            if error.code is ErrorCode.SECURITY_DISABLED:
                self._say(f"the {side} cluster has no authorizer")
            elif error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                self._say(
                    f"the link may not list ACLs of the {side} cluster: it needs DESCRIBE on CLUSTER there"
                )
            else:
                raise
        return None

    def _say(self, reason: str | None) -> None:
        if reason != self.reason and reason is not None:
            _log.info("ACLs are not synced: %s", reason)
        self.reason = reason

    async def _apply(
        self,
        call: Callable[[list[Acl]], Awaitable[None]],
        acls: list[Acl],
        what: str,
        grants: Mapping[Acl, Granted],
    ) -> dict[Acl, KafkaError]:
        """Those that the target refused; one of them does not stop the others. Each is noted before, by what
        `grants` says of it."""

        async def ask(part: list[Acl]) -> Mapping[Acl, None]:
            await call(part)
            return dict.fromkeys(part)

        refused: dict[Acl, KafkaError] = {}
        for part in (acls[:1], acls[1:]):  # who may not change one may not change any
            await self._note({**self.owned, **{acl: grants[acl] for acl in part}})
            done, not_done = await piecemeal(ask, part)
            for error in not_done.values():
                if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                    self._say("the link may not change ACLs of the target: it needs ALTER on CLUSTER there")
                    return dict.fromkeys(acls, error)
            for acl in done:
                _log.info("ACL %s: %s", what, acl)
            refused |= not_done
        for acl, error in refused.items():
            if self._refused.get(acl) != str(error):
                _log.error("ACL not %s: %s: %s", what, acl, error)
        return refused

    def to_json(self) -> dict[str, Any]:
        """Counts, and the ACLs that are not as they should be."""
        return {
            "reason": self.reason,
            "granted_by_link": len(self.owned),
            "granted_by_others": len(self._plan.foreign),
            "to_grant": _texts(self._plan.create),
            "to_revoke": _texts([*self._plan.revoke, *self._plan.held]),
            "not_revoked_because": self._plan.held_because,
            "write_withheld": _texts(self._withheld),
            "refused": {str(acl): error for acl, error in list(self._refused.items())[:_SHOWN]},
        }


def _texts(acls: list[Acl]) -> list[str]:
    rest = len(acls) - _SHOWN
    return [*map(str, acls[:_SHOWN]), *([f"and {rest} more"] if rest > 0 else [])]
