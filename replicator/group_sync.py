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
from typing import TypeVar

from protocol.client import ClusterClient, Committed
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import TopicPartition
from replicator.filters import NameFilter
from replicator.group_rules import decide
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
    ) -> None:
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
        names = [
            group.group_id
            for group in await self._source.list_groups()
            if group.protocol_type in ("consumer", "") and self._groups.accepts(group.group_id)
        ]
        ledgers = self._ledgers()
        translated = await _some_at_a_time(names, lambda name: self._translate(name, ledgers))
        self.translations = {name: found for name, found in translated.items() if found is not None}
        for gone in self.standings.keys() - self.translations.keys():
            del self.standings[gone]
        if self._write:
            await _some_at_a_time(list(self.translations), self._sync)

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

    async def _sync(self, group: str) -> None:
        translation = self.translations[group]
        now = asyncio.get_running_loop().time()
        wanted = {tp: position.offset for tp, position in translation.positions.items()}
        standing = self.standings.get(group)
        if (
            standing is not None
            and standing.positions == wanted
            and now - standing.compared_at < _LOOK_AGAIN_S
        ):
            return
        try:
            reason, done = await self._compare_and_write(group, translation)
        except ProtocolError as error:
            reason, done = str(error), False
            if isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                reason = "the group is active at the target"
        self.standings[group] = Standing(reason, len(wanted), now, wanted if done else None)

    async def _compare_and_write(self, group: str, translation: GroupTranslation) -> tuple[str | None, bool]:
        state = (await self._target.describe_groups([group]))[group].state
        there = await self._target.committed(group, list(translation.positions))
        decision = decide(translation, state, {tp: found.offset for tp, found in there.items()})
        if decision.commits:
            await self._target.commit(
                group, {tp: Committed(offset) for tp, offset in decision.commits.items()}
            )
        active = decision.reason is not None and not decision.commits and state not in ("Empty", "Dead", "")
        return decision.reason, not active


async def _some_at_a_time(keys: list[K], call: Callable[[K], Awaitable[V]]) -> dict[K, V]:
    slots = asyncio.Semaphore(_AT_A_TIME)

    async def one(key: K) -> V:
        async with slots:
            return await call(key)

    return dict(zip(keys, await asyncio.gather(*map(one, keys)), strict=True))
