"""Group offsets: read at the source, translated, written at the target within about a second.

Owns the requests; what may be written is decided in `group_rules`, positions in `translate`. Groups are
read from their coordinators each interval; the target is asked about a group whose translation changed, and
about all others every few seconds, as somebody may have set them there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar

from protocol.client import ClusterClient, Committed, OffsetsAgain
from protocol.client.group_calls import ListedGroup
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import TopicPartition
from replicator.filters import NameFilter
from replicator.group_deletion import GroupDeletion
from replicator.group_renewal import Renewal
from replicator.group_rows import GroupNotes, Noted
from replicator.group_rules import (
    Rewinds,
    Stood,
    SyncDecision,
    decide,
    is_synced,
    refuses_group,
    why_not_synced,
    why_refused,
)
from replicator.group_translations import GroupTranslations
from replicator.jobs import Worked
from replicator.translate import GroupTranslation
from transfer.ledger import PartitionLedger

_log = logging.getLogger("isthmus.replicator")

K = TypeVar("K")
V = TypeVar("V")

_AT_A_TIME: Final = 8
_COMPARED_AHEAD: Final = 32
"""So many groups are compared before they are written: what was seen at the target is still so."""
_LOOK_AGAIN_S: Final = (5.0, 30.0)
"""A group that did not change is compared with the target at least and at most this often: about ten groups
in a second."""


def _now() -> float:
    """Seconds of a clock that only goes on."""
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class Standing:
    """How a group stands. `reason` None: all its positions are at the target."""

    reason: str | None
    partitions: int
    compared_at: float = 0.0
    positions: Mapping[TopicPartition, int] | None = None
    seen: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Its positions at the target, as last seen or set."""


class _Compared(NamedTuple):
    decision: SyncDecision
    there: Mapping[TopicPartition, Committed]


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
        self._stood: dict[str, dict[TopicPartition, Stood]] = {}
        """Where groups were right, by this process."""
        self._follow_rewinds = follow_rewinds
        self._deletion = deletion
        self._renewal = Renewal()
        self._kept: dict[str, str] = {}
        self._translated = GroupTranslations(source)
        self._again: dict[str, OffsetsAgain] = {}
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
        accepted = [group for group in listed if self._groups.accepts(group.group_id)]
        names = [group.group_id for group in accepted if is_synced(group.protocol_type)]
        self._again = {name: self._again.get(name) or OffsetsAgain() for name in names}
        unread: dict[str, str] = {}
        read = await _some_at_a_time(names, lambda name: self._read(name, unread))
        known = self.translations
        self.translations = {
            **await self._translated.of({name: at for name, at in read.items() if at}, self._ledgers()),
            **{name: known[name] for name in unread if name in known},
        }
        if self._write:
            self._say(accepted, unread)
            await self._sync([group for group in self.translations if group not in unread])
            await self._follow_deletions({group.group_id for group in listed})

    async def _read(self, group: str, unread: dict[str, str]) -> dict[TopicPartition, Committed]:
        """What a group has committed, the same object while that has not changed. Why one cannot be read goes
        to `unread`: what was known of it stays."""
        try:
            return await self._source.committed(group, again=self._again[group])
        except KafkaError as error:
            unread[group] = f"it cannot be read at the source: {error}"
            return {}

    def _say(self, accepted: Iterable[ListedGroup], unread: Mapping[str, str]) -> None:
        """Forgets groups that are gone, and says why others cannot be synced."""
        kinds = {group.group_id: why_not_synced(group.protocol_type) for group in accepted}
        said = {group: why for group, why in kinds.items() if why is not None} | dict(unread)
        for gone in self.standings.keys() - self.translations.keys() - self._kept.keys() - said.keys():
            del self.standings[gone]
            self._stood.pop(gone, None)
        self._renewal.keep(self.translations)
        for group, reason in said.items():
            before = self.standings.get(group)
            if before is None or before.reason != reason:
                _log.warning("group %s: %s", group, reason)
            self._stands(group, reason, done=False)

    async def _sync(self, groups: Iterable[str]) -> None:
        """Compares what changed, notes what is about to be set, sets it."""
        due = [*filter(self._is_due, groups)]
        for start in range(0, len(due), _COMPARED_AHEAD):
            await self._sync_part(due[start : start + _COMPARED_AHEAD])

    async def _sync_part(self, groups: list[str]) -> None:
        compared = await _some_at_a_time(groups, self._compared)
        found = {group: one for group, one in compared.items() if one is not None}
        noted_before = await self._note({group: one.decision for group, one in found.items()})
        taken = await _some_at_a_time([*found], lambda group: self._commit(group, found[group]))
        untrue = {group: notes for group, notes in noted_before.items() if not taken[group]}
        if untrue and self._notebook is not None:
            await self._notebook.save_groups(untrue)

    def _is_due(self, group: str) -> bool:
        standing, wanted = self.standings.get(group), self._wanted(group)
        return (
            standing is None
            or (standing.positions is not wanted and standing.positions != wanted)
            or _now() - standing.compared_at >= self._look_again_s()
        )

    def _look_again_s(self) -> float:
        least, most = _LOOK_AGAIN_S
        return min(max(len(self.translations) / 10, least), most)

    def _wanted(self, group: str) -> Mapping[TopicPartition, int]:
        translation = self.translations.get(group)
        return translation.offsets if translation else {}

    async def _compared(self, group: str) -> _Compared | None:
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
        stood = self._stood.get(group, {})
        return _Compared(decide(translation, state, committed, rewinds, stood), there)

    async def _commit(self, group: str, compared: _Compared) -> bool:
        """False: the target has refused the group, and nothing of it is set."""
        decision = compared.decision
        positions = self.translations[group].positions
        commits = {
            tp: Committed(offset, -1, positions[tp].metadata) for tp, offset in decision.commits.items()
        }
        renewed = {} if decision.waits else self._to_renew(group, compared.there)
        try:
            await self._set(group, {**renewed, **commits})
        except ProtocolError as error:
            self._stands(group, why_refused(error), done=False)
            return not refuses_group(error)
        else:
            self._tell_resets(group, commits, compared.there)
            self._stands(group, decision.reason, done=not decision.waits)
            there = {**compared.there, **commits}
            self.standings[group].seen = {tp: at.offset for tp, at in there.items()}
            self._stood[group] = {
                tp: Stood(at.offset, positions[tp].committed)
                for tp, at in there.items()
                if tp in positions and at.offset == positions[tp].offset
            }
            if renewed:
                self._renewal.done(group, _now())
            return True

    async def _set(self, group: str, commits: Mapping[TopicPartition, Committed]) -> None:
        if not commits:
            return
        try:
            await self._target.commit(group, commits)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_METADATA_TOO_LARGE:
                raise
            # the target takes less of it than the source: the position is what counts
            await self._target.commit(group, {tp: at._replace(metadata="") for tp, at in commits.items()})

    def _tell_resets(
        self, group: str, commits: Iterable[TopicPartition], there: Mapping[TopicPartition, Committed]
    ) -> None:
        standing = self.standings.get(group)
        seen = standing.seen if standing is not None else {}
        back = [tp for tp in commits if tp in there and there[tp].offset < seen.get(tp, -1)]
        if back:
            _log.warning(
                "group %s was taken back at the target (%s): it was set to where the source's group stands. "
                "A reset at the target lasts while the link leaves the group alone (groups_exclude)",
                group,
                ", ".join(f"{tp} from {seen[tp]} to {there[tp].offset}" for tp in sorted(back)),
            )

    def _to_renew(
        self, group: str, there: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, Committed]:
        """Positions that are as wanted, to be written as they are."""
        if not self._renewal.is_due(group, _now()):
            return {}
        wanted = self._wanted(group)
        return {tp: at for tp, at in there.items() if at.offset == wanted.get(tp)}

    def _stands(self, group: str, reason: str | None, *, done: bool) -> None:
        wanted, now = self._wanted(group), _now()
        standing = Standing(reason, len(wanted), now, wanted if done else None)
        before = self.standings.get(group)
        if before is not None:
            standing.seen = before.seen
        self.standings[group] = standing

    async def _rewinds(
        self, group: str, translation: GroupTranslation, committed: Mapping[TopicPartition, int]
    ) -> Rewinds | None:
        if not self._follow_rewinds or self._notebook is None:
            return None
        state = ""
        if any(one.offset < committed.get(tp, -1) for tp, one in translation.positions.items()):
            state = (await self._source.describe_groups([group]))[group].state
        return Rewinds(self._notebook.groups().get(group, {}), state)

    async def _note(self, decisions: Mapping[str, SyncDecision]) -> dict[str, GroupNotes | None]:
        """First, so that nothing is set that is not known to be the link's. Returns what was noted of these
        groups before. Raises ProtocolError."""
        if self._notebook is None:
            return {}
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
        before = {group: known.get(group) for group in changed}
        if changed:
            await self._notebook.save_groups(changed)
        return before

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
            return await Worked(lambda: call(key))

    return dict(zip(keys, await asyncio.gather(*map(one, keys)), strict=True))
