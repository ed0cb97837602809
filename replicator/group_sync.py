"""Group offsets: read at the source, translated, written at the target within about a second.

Owns the requests; what may be written is decided in `group_rules`, positions in `translate`. Groups are
read from their coordinators each interval; the target is only asked about a group whose translation
changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from protocol.client import ClusterClient, Committed
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import TopicPartition
from replicator.filters import NameFilter
from replicator.group_deletion import GroupDeletion
from replicator.group_rows import GroupNotes, Noted
from replicator.group_rules import Rewinds, SyncDecision, decide
from replicator.translate import GroupTranslation, translate_group
from transfer.ledger import PartitionLedger

_log = logging.getLogger("isthmus.replicator")

K = TypeVar("K")
V = TypeVar("V")

_AT_A_TIME = 8
_LOOK_AGAIN_S = 30.0
"""A group that did not change is compared with the target this often."""


@dataclass(slots=True)
class Standing:
    """How a group stands. `reason` None: all its positions are at the target."""

    reason: str | None
    partitions: int
    compared_at: float = 0.0
    positions: dict[TopicPartition, int] | None = None


class Notebook(Protocol):
    """Where is noted what the link has set of each group."""

    def groups(self) -> Mapping[str, GroupNotes]:
        """As last read and saved."""

    async def save_groups(self, notes: Mapping[str, GroupNotes | None]) -> None:
        """Adds or replaces; None forgets a group. Raises ProtocolError."""


class GroupSync:
    """One pass per `once`; `standings` is for the status."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        groups: NameFilter,
        ledgers: Callable[[], Mapping[TopicPartition, PartitionLedger]],
        *,
        write: bool,
        notebook: Notebook | None = None,
        follow_rewinds: bool = False,
        deletion: GroupDeletion | None = None,
    ) -> None:
        """What the link sets is noted in `notebook`, if there is one: following deliberate resets and
        deletions needs it."""
        self._notebook = notebook
        self._follow_rewinds = follow_rewinds
        self._deletion = deletion
        self._kept: dict[str, str] = {}
        self._source = source
        self._target = target
        self._groups = groups
        self._ledgers = ledgers
        self._write = write
        self.standings: dict[str, Standing] = {}
        self.translations: dict[str, GroupTranslation] = {}

    def accept(self, groups: NameFilter) -> None:
        """Only these from now on."""
        self._groups = groups

    async def once(self) -> None:
        """Reads, translates and writes all groups. Raises ProtocolError if the source cannot be asked."""
        listed = await self._source.list_groups()
        names = [
            group.group_id
            for group in listed
            if group.protocol_type in ("consumer", "") and self._groups.accepts(group.group_id)
        ]
        ledgers = self._ledgers()
        translated = await _some_at_a_time(names, lambda name: self._translate(name, ledgers))
        self.translations = {name: found for name, found in translated.items() if found is not None}
        for gone in self.standings.keys() - self.translations.keys() - self._kept.keys():
            del self.standings[gone]
        if self._write:
            await self._sync()
            await self._follow_deletions({group.group_id for group in listed})

    async def _translate(
        self, group: str, ledgers: Mapping[TopicPartition, PartitionLedger]
    ) -> GroupTranslation | None:
        """None for a group that has nothing to do with what this link copies."""
        try:
            committed = await self._source.committed(group)
        except KafkaError as error:
            _log.warning("group %s: %s", group, error)
            return self.translations.get(group)
        ours = {tp: found.offset for tp, found in committed.items() if tp in ledgers}
        return translate_group(ours, ledgers) if ours else None

    async def _sync(self) -> None:
        """Compares what changed, notes what is about to be set, sets it."""
        compared = await _some_at_a_time([*filter(self._is_due, self.translations)], self._compared)
        decisions = {group: decision for group, decision in compared.items() if decision is not None}
        await self._note(decisions)
        await _some_at_a_time([*decisions], lambda group: self._commit(group, decisions[group]))

    def _is_due(self, group: str) -> bool:
        standing = self.standings.get(group)
        return (
            standing is None
            or standing.positions != self._wanted(group)
            or asyncio.get_running_loop().time() - standing.compared_at >= _LOOK_AGAIN_S
        )

    def _wanted(self, group: str) -> dict[TopicPartition, int]:
        return {tp: position.offset for tp, position in self.translations[group].positions.items()}

    async def _compared(self, group: str) -> SyncDecision | None:
        """None when a cluster could not be asked."""
        translation = self.translations[group]
        try:
            state = (await self._target.describe_groups([group]))[group].state
            there = await self._target.committed(group, list(translation.positions))
            committed = {tp: found.offset for tp, found in there.items()}
            rewinds = await self._rewinds(group, translation, committed)
        except ProtocolError as error:
            self._stands(group, str(error), done=False)
            return None
        return decide(translation, state, committed, rewinds)

    async def _commit(self, group: str, decision: SyncDecision) -> None:
        try:
            if decision.commits:
                commits = {tp: Committed(offset) for tp, offset in decision.commits.items()}
                await self._target.commit(group, commits)
        except ProtocolError as error:
            active = isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_MEMBER_ID
            self._stands(group, "the group is active at the target" if active else str(error), done=False)
        else:
            self._stands(group, decision.reason, done=not decision.waits)

    def _stands(self, group: str, reason: str | None, *, done: bool) -> None:
        wanted, now = self._wanted(group), asyncio.get_running_loop().time()
        self.standings[group] = Standing(reason, len(wanted), now, wanted if done else None)

    async def _rewinds(
        self, group: str, translation: GroupTranslation, committed: Mapping[TopicPartition, int]
    ) -> Rewinds | None:
        if not self._follow_rewinds or self._notebook is None:
            return None
        state = ""
        if any(one.offset < committed.get(tp, -1) for tp, one in translation.positions.items()):
            state = (await self._source.describe_groups([group]))[group].state
        return Rewinds(self._notebook.groups().get(group, {}), state)

    async def _note(self, decisions: Mapping[str, SyncDecision]) -> None:
        """First, so that nothing is set that is not known to be the link's. Raises ProtocolError."""
        if self._notebook is None:
            return
        source_of = {
            TopicPartition(ledger.target.topic, ledger.target.partition): tp
            for tp, ledger in self._ledgers().items()
        }
        known = self._notebook.groups()
        changed: dict[str, GroupNotes] = {}
        for group, decision in decisions.items():
            positions = self.translations[group].positions
            new = {
                tp: Noted(source_of[tp], positions[tp].committed, offset)
                for tp, offset in decision.commits.items()
                if tp in source_of
            }
            if new:
                changed[group] = {**known.get(group, {}), **new}
            if decision.goes_back:
                _log.warning("group %s was reset at the source: it follows to %s", group, decision.commits)
        if changed:
            await self._notebook.save_groups(changed)

    async def _follow_deletions(self, at_source: set[str]) -> None:
        if self._deletion is None or self._notebook is None:
            return
        owned = self._notebook.groups()
        wanted = [group for group in owned if self._groups.accepts(group)]
        done, self._kept = await self._deletion.once(owned, at_source, wanted)
        if done:
            await self._notebook.save_groups(dict.fromkeys(done))
        for group, reason in self._kept.items():
            self.standings[group] = Standing(reason, len(owned[group]))


async def _some_at_a_time(keys: list[K], call: Callable[[K], Awaitable[V]]) -> dict[K, V]:
    slots = asyncio.Semaphore(_AT_A_TIME)

    async def one(key: K) -> V:
        async with slots:
            return await call(key)

    return dict(zip(keys, await asyncio.gather(*map(one, keys)), strict=True))
