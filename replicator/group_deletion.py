"""Groups that were deleted at the source, deleted at the target too (`groups_on_delete: delete`).

Owns the requests; when a group may go is decided in `group_rules`. Only groups that the link has set are
looked at, and before one goes the coordinators of both sides are asked about it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from protocol.client import ClusterClient
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from replicator.group_rows import GroupNotes
from replicator.group_rules import held_back, refuses_deletion

_log = logging.getLogger("isthmus.replicator")


class GroupDeletion:
    """Of one link. `source_topics` are those that it copies now."""

    def __init__(
        self, source: ClusterClient, target: ClusterClient, source_topics: Callable[[], Collection[str]]
    ) -> None:
        self._source = source
        self._target = target
        self._source_topics = source_topics

    async def once(
        self, owned: Mapping[str, GroupNotes], at_source: Collection[str], wanted: Iterable[str]
    ) -> tuple[set[str], dict[str, str]]:
        """Groups among `wanted` that are gone on both sides now, and why others are kept though they are gone
        at the source. Raises ProtocolError."""
        gone = [group for group in wanted if group in owned and group not in at_source]
        why = held_back(gone, len(owned), any_at_source=bool(at_source))
        if why is not None:
            return set(), dict.fromkeys(gone, f"deleted at the source, not here: {why}")
        done: set[str] = set()
        kept: dict[str, str] = {}
        for group in gone:
            try:
                refusal = await self._delete(group, owned[group])
            except ProtocolError as error:
                refusal = str(error)
            if refusal is None:
                done.add(group)
            else:
                kept[group] = f"deleted at the source, not here: {refusal}"
        return done, kept

    async def _delete(self, group: str, notes: GroupNotes) -> str | None:
        here = (await self._source.describe_groups([group]))[group].state
        there = (await self._target.describe_groups([group]))[group].state
        committed = {tp: found.offset for tp, found in (await self._target.committed(group)).items()}
        why = refuses_deletion(notes, here, there, committed, self._source_topics())
        if why is not None:
            return why
        try:
            await self._target.delete_groups([group])
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        _log.warning("group %s was deleted at the source, and now at the target", group)
        return None
