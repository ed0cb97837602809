"""Committed offsets of groups, copied as they are: offset, leader epoch and metadata.

Owns the rules. Offsets mean the same on both sides, so nothing is translated; what the mirror does not hold
yet is clamped to its end (I4). A group with members at the target is left alone, and so is a position that
somebody moved ahead there; it is taken back only where nobody but this link has written it, or where the log
is cut off before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from protocol.client import ClusterClient, Committed
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import TopicPartition
from replicator.filters import NameFilter
from replicator.group_renewal import Renewal
from replicator.group_rows import GroupNotes, Noted
from replicator.group_rules import is_idle, is_synced, refuses_group, why_not_synced, why_refused
from replicator.group_topics import GroupTopics
from replicator.mirrors.standing import RECORD_GROUPS
from replicator.progress import ProgressStore

_AT_A_TIME: Final = 8

Ends = Callable[[], Mapping[TopicPartition, int]]
"""Ends of the mirrors, by partition: what consumers may read there."""


class GroupCopy:
    """`reasons`: why a group is not, or not wholly, as at the source; None: it is. What it sets is noted in
    `store` before it is set: a link that starts anew, or a promotion, knows what is a link's."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        groups: NameFilter,
        ends: Ends,
        store: ProgressStore,
        topic_ids: Callable[[], Mapping[str, str]],
    ) -> None:
        """`topic_ids`: of the source's topics that the mirrors are of."""
        self._source = source
        self._target = target
        self._groups = groups
        self._ends = ends
        self._store = store
        self._topic_ids = topic_ids
        self._topics = GroupTopics(source)
        self.reasons: dict[str, str | None] = {}
        self._renewal = Renewal()
        self._at_rest: dict[str, dict[TopicPartition, Committed]] = {}

    async def once(self) -> None:
        """All groups. Raises ProtocolError if the source, or what is noted, cannot be asked."""
        wanted = await self.look()
        if wanted:
            await self._set(wanted)
        await self._renew()

    async def _set(self, wanted: Mapping[str, Mapping[TopicPartition, Committed]]) -> None:
        await self._store.load()
        known = dict(self._store.groups())
        await self._store.save_groups(
            {
                group: {
                    **known.get(group, {}),
                    **{tp: Noted(tp, at.offset, at.offset) for tp, at in of.items()},
                }
                for group, of in wanted.items()
            }
        )
        slots = asyncio.Semaphore(_AT_A_TIME)

        untrue: dict[str, GroupNotes | None] = {}

        async def one(group: str) -> None:
            async with slots:
                with self._explained(group):
                    try:
                        await self._target.commit(group, wanted[group])
                    except ProtocolError as error:
                        if refuses_group(error):
                            untrue[group] = known.get(group)
                        raise

        await asyncio.gather(*map(one, wanted))
        if untrue:
            await self._store.save_groups(untrue)

    async def _renew(self) -> None:
        """What stands as at the source is written as it is, and not noted: who set it does not matter."""
        now = time.monotonic()
        due = [group for group, at in self._at_rest.items() if at and self._renewal.is_due(group, now)]
        for group in due:
            self._renewal.done(group, now)
            with contextlib.suppress(ProtocolError):  # one that has members needs it not
                await self._target.commit(group, self._at_rest[group])
        self._renewal.keep(self._at_rest)

    async def look(self) -> dict[str, dict[TopicPartition, Committed]]:
        """What has to be set, by group; sets nothing but `reasons`. Raises ProtocolError as `once`."""
        listed = [
            group
            for group in await self._source.list_groups()
            if self._groups.accepts(group.group_id) and not group.group_id.startswith(RECORD_GROUPS)
        ]
        names = [group.group_id for group in listed if is_synced(group.protocol_type)]
        why_not = {group.group_id: why_not_synced(group.protocol_type) for group in listed}
        not_synced = {group: why for group, why in why_not.items() if why is not None}
        await self._store.refresh()
        slots = asyncio.Semaphore(_AT_A_TIME)
        wanted: dict[str, dict[TopicPartition, Committed]] = {}
        self._at_rest = {}

        async def one(name: str) -> None:
            async with slots:
                with self._explained(name):
                    commits = await self._look(name)
                    if commits:
                        wanted[name] = commits

        await asyncio.gather(*map(one, names))
        await self._leave_out_others(wanted)
        self.reasons.update(not_synced)
        for gone in self.reasons.keys() - set(names) - not_synced.keys():
            del self.reasons[gone]
        return wanted

    async def _leave_out_others(self, wanted: dict[str, dict[TopicPartition, Committed]]) -> None:
        """Offsets of a topic that was made again mean nothing in the mirror of the former one."""
        mirrored = self._topic_ids()
        now = await self._topics.ids(wanted, lambda tp: mirrored.get(tp.topic))
        topics = {tp.topic for commits in wanted.values() for tp in commits}
        others = {name for name in topics if now.get(name, mirrored.get(name)) != mirrored.get(name)}
        for group, commits in [*wanted.items()] if others else ():
            left = {tp: at for tp, at in commits.items() if tp.topic not in others}
            if left != commits:
                names = ", ".join(sorted({tp.topic for tp in commits} & others))
                self.reasons[group] = (
                    f"{names} was created again at the source: its offsets are not the mirror's"
                )
                wanted[group] = left
            if not left:
                del wanted[group]

    @contextlib.contextmanager
    def _explained(self, group: str) -> Iterator[None]:
        """What is wrong with one group holds up no other."""
        try:
            yield
        except ProtocolError as error:
            self.reasons[group] = why_refused(error)

    async def _look(self, group: str) -> dict[TopicPartition, Committed]:
        ends = self._ends()
        here = {tp: at for tp, at in (await self._source.committed(group)).items() if tp in ends}
        if not here:  # it has nothing to do with the mirrors
            self.reasons.pop(group, None)
            return {}
        there = await self._target.committed(group, list(here))
        written = {tp: noted.target for tp, noted in self._store.groups().get(group, {}).items()}
        commits, notes = decide(here, there, ends, written)
        if commits:
            state = (await self._target.describe_groups([group]))[group].state
            if not is_idle(state):
                self.reasons[group] = f"the group is active at the target ({state})"
                return {}
        self._at_rest[group] = {
            tp: at
            for tp, at in there.items()
            if tp not in commits and at.offset == min(here[tp].offset, ends[tp])
        }
        self.reasons[group] = "; ".join(notes) or None
        return commits


async def take_back(client: ClusterClient, ends: Mapping[TopicPartition, int]) -> dict[str, str]:
    """Before logs are cut to `ends`: positions of any group behind them go there, as other records will stand
    where the group has read. What became of each such group. Raises ProtocolError."""
    slots = asyncio.Semaphore(_AT_A_TIME)
    found: dict[str, str] = {}

    async def one(name: str) -> None:
        async with slots:
            behind = {
                tp: Committed(ends[tp])
                for tp, at in (await client.committed(name, list(ends))).items()
                if at.offset > ends[tp]
            }
            if not behind:
                return
            where = ", ".join(f"{tp} to {at.offset}" for tp, at in sorted(behind.items()))
            try:
                removed = await _commit_anyway(client, name, behind)
            except KafkaError as error:
                why = "it has members" if error.code is ErrorCode.UNKNOWN_MEMBER_ID else str(error)
                found[name] = f"stands behind what is cut off, and is not taken back ({where}): {why}"
            else:
                and_so = "; its members have to join again" if removed else ""
                found[name] = f"stood behind what is cut off: taken back ({where}){and_so}"

    groups = [group.group_id for group in await client.list_groups() if is_synced(group.protocol_type)]
    await asyncio.gather(*(one(name) for name in groups if not name.startswith(RECORD_GROUPS)))
    return found


async def _commit_anyway(
    client: ClusterClient, group: str, offsets: Mapping[TopicPartition, Committed]
) -> int:
    """Members have read what will not be there: they leave (after a disaster they may be gone long since) and
    begin at these offsets. How many were removed. Raises KafkaError."""
    removed = 0
    for is_last in (False, False, True):
        try:
            await client.commit(group, offsets)
            break
        except KafkaError as error:
            if is_last or error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
        removed += await client.remove_members(group, "the records that it has read are cut off")
    return removed


def decide(
    here: Mapping[TopicPartition, Committed],
    there: Mapping[TopicPartition, Committed],
    ends: Mapping[TopicPartition, int],
    written: Mapping[TopicPartition, int],
) -> tuple[dict[TopicPartition, Committed], list[str]]:
    """What to commit at the target, and what is to be said of the rest."""
    commits: dict[TopicPartition, Committed] = {}
    held = ahead = 0
    for tp, at in here.items():
        wanted = at
        if at.offset > ends[tp]:
            held += 1
            wanted = Committed(ends[tp])  # what was said of a position further on may not hold there
        known = there.get(tp)
        if known is not None and known.offset > wanted.offset and written.get(tp) != known.offset:
            ahead += 1
        elif known is None or (known.offset, known.metadata) != (wanted.offset, wanted.metadata):
            commits[tp] = wanted
    notes = []
    if held:
        notes.append(f"{held} partition(s) wait for records that are not mirrored yet")
    if ahead:
        notes.append(f"{ahead} partition(s) are further at the target and are not taken back")
    return commits, notes
