"""New mirrors for topics that were created again (`on_recreated: new_mirror`): found, noted, waited for.

Owns the requests of the leader: before a mirror is made its row is stored, and before a mirror counts as
deleted the target's controller has been asked (a listing may be behind). Workers open no partition whose
topics are not those of the row, so nothing of a new topic gets into the mirror of the old one. What follows
from the ids is decided in `mirror_rows`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from protocol.client import ClusterClient, NewTopic, TopicMetadata
from protocol.errors import ErrorCode, KafkaError
from protocol.types import ZERO_UUID, uuid_to_text
from replicator.discovery import Found, Wanted
from replicator.mirror_rows import Mirror, from_ledgers, settled
from replicator.naming import Naming
from replicator.progress import Progress, ProgressStore
from transfer.ledger import PartitionLedger

_log = logging.getLogger("isthmus.replicator")


def current_names(mirrors: Mapping[str, Mirror], naming: Naming) -> dict[str, str]:
    """Of mirrors that are not called as the naming says, by source topic; rows of another naming are void."""
    return {
        topic: mirror.at_target
        for topic, mirror in mirrors.items()
        if mirror.number > 1 and mirror.base == naming.at_target(topic)
    }


class Renewal:
    """Of one link. Without `new_mirrors` it names mirrors that were begun before, and begins none."""

    def __init__(
        self, target: ClusterClient, store: ProgressStore, naming: Naming, *, new_mirrors: bool
    ) -> None:
        self._target = target
        self._store = store
        self._naming = naming
        self._new_mirrors = new_mirrors

    @property
    def mirrors(self) -> Mapping[str, Mirror]:
        """As last read."""
        return self._store.progress.mirrors

    def names(self) -> dict[str, str]:
        """What `discover` is to call mirrors."""
        return current_names(self.mirrors, self._naming)

    async def settle(self, found: Found, at_target: Collection[str]) -> bool:
        """Notes which mirror is current of each topic. True when names have changed. Raises ProtocolError."""
        if not self._new_mirrors:
            return False
        names = {one.target_name for one in found.wanted.values()} | set(at_target)
        changed: dict[str, Mirror] = {}
        renamed = False
        for topic, wanted in found.wanted.items():
            known = self._known(topic, wanted)
            now = await self._settled(known, wanted, lambda name: name in names)
            if now != self.mirrors.get(topic):
                changed[topic] = now
            if now.at_target != wanted.target_name:
                renamed = True
                names.add(now.at_target)
                why = now.former[-1].why if now.former else "it was created again"
                _log.warning("%s: %s: copied into the new mirror %s", topic, why, now.at_target)
        if changed:
            await self._store.save_mirrors(changed)
            await self._store.refresh()
        return renamed

    def _known(self, topic: str, wanted: Wanted) -> Mirror:
        known = self.mirrors.get(topic)
        base = self._naming.at_target(topic)
        if known is not None and known.base == base:
            return known
        return from_ledgers(base, _ledgers(self._store.progress, topic), _id(wanted.source))

    async def _settled(self, known: Mirror, wanted: Wanted, taken: Callable[[str], bool]) -> Mirror:
        source_id = _id(wanted.source)
        target_id = _id(wanted.target) if wanted.target is not None else ""
        if known.belongs(source_id, target_id):
            return known
        if known.target_id and not target_id and not await self._is_gone(known.at_target):
            return known
        return settled(known, source_id, target_id, time.time_ns() // 1_000_000, taken)

    async def _is_gone(self, name: str) -> bool:
        """A broker's listing may lack what the controller knows."""
        try:
            await self._target.create_topics([NewTopic(name, 1, -1, {})], validate_only=True)
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    def may_make(self, wanted: Wanted) -> bool:
        """Whether a mirror is to be made, or grown, now: one that was there is never made again, and while it
        is being deleted its place is not free yet."""
        if not self._new_mirrors or wanted.target is not None:
            return True
        known = self.mirrors.get(wanted.source.name)
        return known is not None and known.at_target == wanted.target_name and not known.target_id

    def hold_back(self, found: Found) -> Found:
        """What may be copied now: topics without their mirror have none for the moment."""
        if self._new_mirrors:
            for topic, wanted in found.wanted.items():
                mirror = self.mirrors.get(topic)
                there = wanted.target
                if there is not None and (
                    mirror is None
                    or mirror.at_target != wanted.target_name
                    or not mirror.belongs(_id(wanted.source), _id(there))
                ):
                    found.wanted[topic] = replace(wanted, target=None)
        return found


def _ledgers(progress: Progress, topic: str) -> Iterator[PartitionLedger]:
    for tp in progress.partitions():
        if tp.topic == topic and (ledger := progress.ledger(tp)) is not None:
            yield ledger


def _id(topic: TopicMetadata) -> str:
    return uuid_to_text(topic.topic_id or ZERO_UUID)
