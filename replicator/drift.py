"""How the topics of a link differ between source and target, whose word counts, and what the link would do.

Owns asking both clusters once and the rows of the report; the rule itself is in `topic_settings`, so that the
report and the sync cannot disagree. Changes nothing. Works while the link is down: what it has set is noted
in its progress topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass

from protocol.client import ClusterClient, ConfigEntry, PartitionMetadata
from replicator.discovery import Found, Wanted, discover
from replicator.filters import PatternList, TopicFilter
from replicator.naming import Naming
from replicator.progress import ProgressStore
from replicator.renewal import current_names
from replicator.settings import LinkSettings
from replicator.target_topics import described
from replicator.topic_settings import Action, CopyRule, Owner, compare
from replicator.upstream import Upstream

PARTITIONS = "partitions"
REPLICATION_FACTOR = "replication factor"
SETTINGS = "settings"


@dataclass(frozen=True, slots=True)
class Drift:
    """One thing that is not alike. `action`: set, take back, create, grow, leave."""

    topic: str
    at_target: str
    key: str
    source: str | None
    target: str | None
    owner: str
    action: str
    why: str

    def to_json(self) -> dict[str, str | None]:
        """For machines."""
        return asdict(self)

    @property
    def open(self) -> bool:
        """Whether it is the link's to mend (or to regret) and not the target's own affair."""
        return self.owner == Owner.LINK


def naming_of(settings: LinkSettings) -> Naming:
    """Names of the link's topics at the target."""
    return settings.names()


def topics_of(settings: LinkSettings) -> TopicFilter:
    """Which topics the link copies."""
    return settings.topic_filter()


async def drift(source: ClusterClient, target: ClusterClient, settings: LinkSettings) -> list[Drift]:
    """All rows by topic and key. Raises ProtocolError when a cluster cannot be asked."""
    found = await found_now(source, target, settings)
    pairs = {name: topic for name, topic in found.wanted.items() if topic.target is not None}
    here, unread = await described(source, list(pairs))
    there, unread_there = await described(target, [topic.target_name for topic in pairs.values()])
    ours = (await ProgressStore(target, settings.progress_topic).refresh()).settings
    rule = CopyRule(PatternList(settings.config_properties_exclude), settings.use_defaults_from == "source")
    rows: list[Drift] = []
    for name, topic in sorted(found.wanted.items()):
        rows += shape(topic, settings.replication_factor)
        if name in here and topic.target_name in there:
            rows += _settings(topic, here[name], there[topic.target_name], ours.get(name, {}), rule)
        elif (error := unread.get(name) or unread_there.get(topic.target_name)) is not None:
            why = f"cannot be compared: {error}"
            rows.append(Drift(name, topic.target_name, SETTINGS, None, None, Owner.LINK, Action.NONE, why))
    return rows if settings.sync_topic_configs else [_not_synced(row) for row in rows]


async def found_now(source: ClusterClient, target: ClusterClient, settings: LinkSettings) -> Found:
    """What the link copies and what it does not, as both clusters are now."""
    here, there = await source.metadata(None), await target.metadata(None)
    wanted, naming = topics_of(settings), naming_of(settings)
    await Upstream(source).look(here.topics, wanted)
    return discover(here.topics, there.topics, wanted, naming, await mirrors_now(target, settings))


async def mirrors_now(target: ClusterClient, settings: LinkSettings) -> dict[str, str]:
    """Mirrors that are not called as the naming says, by source topic (`on_recreated: new_mirror`)."""
    if settings.on_recreated != "new_mirror":
        return {}
    progress = await ProgressStore(target, settings.progress_topic).refresh()
    return current_names(progress.mirrors, naming_of(settings))


def _settings(
    topic: Wanted,
    here: Mapping[str, ConfigEntry],
    there: Mapping[str, ConfigEntry],
    ours: Mapping[str, str],
    rule: CopyRule,
) -> Iterator[Drift]:
    for found in compare(here, there, ours, rule):
        yield Drift(
            topic.source.name,
            topic.target_name,
            found.key,
            found.source,
            found.target,
            found.owner,
            found.action,
            found.why,
        )


def shape(topic: Wanted, replication_factor: int) -> Iterator[Drift]:
    """Partitions and replicas."""
    name, target_name = topic.source.name, topic.target_name
    here = len(topic.source.partitions)
    if topic.target is None:
        why = "it is not at the target yet"
        yield Drift(name, target_name, PARTITIONS, str(here), None, Owner.LINK, "create", why)
        return
    there = len(topic.target.partitions)
    if there < here:
        why = "the source has more"
        yield Drift(name, target_name, PARTITIONS, str(here), str(there), Owner.LINK, "grow", why)
    elif there > here:
        why = "surplus partitions of the target stay empty"
        yield Drift(name, target_name, PARTITIONS, str(here), str(there), Owner.TARGET, Action.NONE, why)
    copies = _copies(topic.source.partitions.values()), _copies(topic.target.partitions.values())
    if copies[0] != copies[1] and "0" not in copies:
        asked = "the target's default" if replication_factor == -1 else str(replication_factor)
        why = f"the link's replication_factor is {asked}; that of a topic that exists is never changed"
        yield Drift(name, target_name, REPLICATION_FACTOR, *copies, Owner.TARGET, Action.NONE, why)


def _copies(partitions: Collection[PartitionMetadata]) -> str:
    return str(max((len(one.replicas) for one in partitions), default=0))


def _not_synced(row: Drift) -> Drift:
    if row.key == PARTITIONS or row.owner == Owner.TARGET:
        return row
    why = "the link has sync_topic_configs off"
    return Drift(row.topic, row.at_target, row.key, row.source, row.target, Owner.TARGET, Action.NONE, why)
