"""Topics that an ad-hoc copy comes upon while it runs: what was checked for the others at its start holds for
them too.

Owns which names cannot be (two topics into one, a topic of one cluster into itself or round in a circle) and
leaving newcomers out that they concern, or whose topic at the target holds records of something else.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from protocol.client import EARLIEST, LATEST, ClusterClient
from protocol.errors import KafkaError
from protocol.types import TopicPartition, uuid_to_text
from replicator.discovery import Found, Wanted
from replicator.progress import ProgressStore
from replicator.renaming import wrong_name
from replicator.settings import LinkSettings, is_progress_topic
from transfer.ledger import LedgerError

_log = logging.getLogger("isthmus.replicator")


def name_clashes(
    names: Iterable[tuple[str, str]], *, same_cluster: bool, settings: LinkSettings
) -> Iterator[tuple[str, str]]:
    """Topics that cannot be copied under their names (source, target), and why; of two with one name at the
    target it is the later one."""
    taken = settings.topic_filter()
    by_target: dict[str, str] = {}
    for topic, there in names:
        first = by_target.setdefault(there, topic)
        if wrong := wrong_name(there):
            yield topic, f"{topic} cannot be copied with this --rename: {wrong}"
        elif first != topic:
            yield topic, f"{first} and {topic} would both be called {there}: change --rename"
        elif same_cluster and there == topic:
            yield topic, f"--from and --to are one cluster: {topic} needs another name, say --rename"
        elif same_cluster and taken.accepts(there):
            yield (
                topic,
                f"{there}, the copy of {topic} in the same cluster, is among --topics itself and would be"
                f" copied again and again: choose a name that they do not match, or --exclude '{there}'",
            )


class Newcomers:
    """Of one running copy. What it finds at its first look was checked before it began."""

    def __init__(
        self, source: ClusterClient, target: ClusterClient, settings: LinkSettings, store: ProgressStore
    ) -> None:
        self._source = source
        self._target = target
        self._settings = settings
        self._store = store
        self._known: dict[str, None] | None = None
        self.problems: dict[str, str] = {}
        """Why topics are left out, as last looked."""

    async def sort(self, found: Found) -> None:
        """Leaves out those that cannot be copied as they are. Raises ProtocolError."""
        known = self._known if self._known is not None else dict.fromkeys(found.wanted)
        new = [name for name in sorted(found.wanted) if name not in known]
        names = [(name, found.wanted[name].target_name) for name in (*known, *new) if name in found.wanted]
        same = self._source.cluster_id == self._target.cluster_id
        problems = dict(name_clashes(names, same_cluster=same, settings=self._settings))
        fresh = {name: found.wanted[name] for name in new if name not in problems}
        if fresh and not self._settings.appends:
            held = await records_of_others(self._target, self._without_progress(fresh))
            problems |= {
                name: f"{found.wanted[name].target_name} holds {count:,} records already, and progress of no"
                " copy between these topics: say --append, or --rename"
                for name, count in held.items()
                if count
            }
        for name, why in problems.items():
            if self.problems.get(name) != why:
                _log.error("%s is not copied: %s", name, why)
            found.refused[name] = why
            del found.wanted[name]
        self.problems = problems
        self._known = {**known, **dict.fromkeys(name for name in new if name in found.wanted)}

    def _without_progress(self, fresh: Mapping[str, Wanted]) -> dict[str, Wanted]:
        return {
            name: one
            for name, one in fresh.items()
            if not any(
                self._store.into(TopicPartition(name, number), one.target_name)
                for number in one.source.partitions
            )
        }


async def filled_from_there(
    source: ClusterClient, target: ClusterClient, wanted: Mapping[str, Wanted]
) -> dict[str, str]:
    """Topics that a link or copy fills from the very topic that they are to be copied into, and where its
    progress is at the source. Links that this user may not read about are not known. Raises ProtocolError."""
    listed = (await source.metadata(None)).topics
    found: dict[str, str] = {}
    for topic in sorted(name for name in listed if is_progress_topic(name)):
        try:
            entries = (await ProgressStore(source, topic).refresh()).entries().values()
        except (KafkaError, LedgerError) as error:
            _log.warning("what %s says cannot be read: %s", topic, error)
            continue
        for ledger in (entry.ledger for entry in entries):
            one = wanted.get(ledger.target.topic)
            if one is None or one.target is None or ledger.source.cluster_id != target.cluster_id:
                continue
            here, there = uuid_to_text(one.source.topic_id), uuid_to_text(one.target.topic_id)
            if (ledger.target.topic_id, ledger.source.topic_id) == (here, there):
                found[one.source.name] = topic
    return found


async def records_of_others(target: ClusterClient, wanted: Mapping[str, Wanted]) -> dict[str, int]:
    """How many offsets the topics at the target hold, by source topic. Raises ProtocolError."""
    there = {
        TopicPartition(one.target.name, number): name
        for name, one in wanted.items()
        if one.target is not None
        for number in one.target.partitions
    }
    if not there:
        return {}
    first = await target.list_offsets(dict.fromkeys(there, EARLIEST))
    last = await target.list_offsets(dict.fromkeys(there, LATEST))
    found: Counter[str] = Counter()
    for tp, name in there.items():
        found[name] += last[tp].offset - first[tp].offset
    return found
