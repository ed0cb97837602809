"""Of which topics the offsets are that groups have committed: one with the same name may be another by now.

Owns asking the source for ids of topics, and when: after the offsets were read, where those are new. An
offset of a topic that was made again means nothing in the copy of the former one, and a group would go back,
or forward, by it. What follows from an id is decided by who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from protocol.client import ClusterClient, Committed
from protocol.types import ZERO_UUID, TopicPartition, uuid_to_text

Offsets = Mapping[str, Mapping[TopicPartition, Committed]]
"""By group."""


class GroupTopics:
    """Remembers ids of topics, and the offsets for which they were asked."""

    def __init__(self, source: ClusterClient) -> None:
        self._source = source
        self._offsets: Offsets = {}
        self._ids: dict[str, str] = {}
        self._others: dict[str, str | None] = {}
        """Topics with the name of one that the copy is of, and which one that is."""

    async def ids(
        self,
        offsets: Offsets,
        ours: Callable[[TopicPartition], str | None],
        same: Collection[str] = (),
    ) -> Mapping[str, str]:
        """Ids of the topics whose offsets these are, if they have any. `ours`: of which topic the copy is; as
        long as another one is there, it is asked for again. `same` groups are known to be as at the last
        call, and so are their copies. Raises ProtocolError."""
        looked_at = {group: at for group, at in offsets.items() if group not in same}
        topics = {
            tp.topic
            for group, at_tp in looked_at.items()
            for tp, at in at_tp.items()
            if self._offsets.get(group, {}).get(tp) != at or self._is_other(tp.topic, ours(tp))
        }
        if self._others:
            topics |= self._others.keys() & {tp.topic for at_tp in offsets.values() for tp in at_tp}
        if topics:
            known = (await self._source.metadata(topics)).topics
            for topic in topics:
                self._ids.pop(topic, None)
                if topic in known and known[topic].topic_id != ZERO_UUID:
                    self._ids[topic] = uuid_to_text(known[topic].topic_id)
        before = {topic: mine for topic, mine in self._others.items() if topic in topics}
        now = before | {tp.topic: ours(tp) for at_tp in looked_at.values() for tp in at_tp}
        self._others = {topic: mine for topic, mine in now.items() if self._is_other(topic, mine)}
        self._offsets = dict(offsets)
        return self._ids

    def _is_other(self, topic: str, ours: str | None) -> bool:
        return self._ids.get(topic, ours) != ours
