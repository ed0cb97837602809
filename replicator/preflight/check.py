"""The check before a start, in order: can both clusters be reached, are they two, then everything else.

Owns which facts are asked for and which rules look at them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence

from protocol.client import ClusterClient
from protocol.errors import ProtocolError
from protocol.types import ZERO_UUID, uuid_to_text
from replicator.dedicated import circles as ways_round
from replicator.drift import found_now
from replicator.filters import NameFilter
from replicator.mirrormaker.connect_offsets import NotToldError
from replicator.mirrormaker.takeover import (
    NoProgressError,
    StillRunningError,
    must_be_idle,
    must_not_have_copied,
)
from replicator.mirrors.lineage import MirrorSource
from replicator.mirrors.topics import mirror_text
from replicator.preflight.asking import ask_brokers, ask_creation, ask_idempotence, ask_side, ask_times
from replicator.preflight.facts import Facts, Side
from replicator.preflight.findings import Finding, Level, together
from replicator.preflight.hanging import ask_hanging, hanging_transactions
from replicator.preflight.limits import replicas, room, sizes, times, tombstones
from replicator.preflight.names import LONGEST, circles, mirrormaker, names, selection
from replicator.preflight.own_topics import ask_own_topics, own_topics, own_topics_rule
from replicator.preflight.rights import rights
from replicator.preflight.transactions import ask_transactions, transactions
from replicator.progress import ProgressStore, read_ledgers
from replicator.settings import LinkSettings
from transfer.ledger import PartitionLedger

_PROGRESS = re.compile(r"isthmus-link\.(?P<source>.+)-to-(?P<target>.+)\.internal")
_RULES = (
    selection,
    rights,
    own_topics_rule,
    mirrormaker,
    names,
    circles,
    sizes,
    times,
    tombstones,
    replicas,
    room,
    transactions,
    hanging_transactions,
)


async def check_link(
    source: ClusterClient, target: ClusterClient, settings: LinkSettings, links: Sequence[LinkSettings] = ()
) -> list[Finding]:
    """All findings. `links` are all that are declared together, for circles and topics of several sources.
    Raises ProtocolError when a cluster stops answering meanwhile.
    """
    facts = Facts(settings, Side(settings.source.alias), Side(settings.target.alias))
    if source.cluster_id == target.cluster_id:
        what = f"source and target are one cluster, {source.cluster_id}"
        to_do = "correct the bootstrap address of one of them"
        return [Finding(Level.ERROR, "clusters", settings.name, what, to_do)]
    await asyncio.gather(ask_brokers(source, facts.source), ask_brokers(target, facts.target))
    try:
        await _gather(source, target, facts)
    except ProtocolError as error:
        if not facts.source.silent and not facts.target.silent:
            raise
        what = f"the rest cannot be looked at: {error}"
        to_do = "mend that first, then check again"
        return [*_clusters(facts), Finding(Level.ERROR, "connectivity", settings.name, what, to_do)]
    facts.circles = ways_round(links)
    facts.gathering = _gathering(settings, links)
    return [*_clusters(facts), *creation(facts), *(one for rule in _RULES for one in rule(facts))]


def _gathering(settings: LinkSettings, links: Sequence[LinkSettings]) -> frozenset[str]:
    """Names of links whose topics may become one with those of this link, and are declared so."""

    def identity(link: LinkSettings) -> bool:
        return link.naming == "identity" and link.offsets != "identical"

    if not identity(settings):
        return frozenset()
    target = settings.target.alias
    return frozenset(one.name for one in links if one.target.alias == target and identity(one))


async def _gather(source: ClusterClient, target: ClusterClient, facts: Facts) -> None:
    settings = facts.settings
    facts.found = await found_now(source, target, settings)
    facts.source.topics = (await source.metadata(None)).topics
    facts.target.topics = (await target.metadata(None)).topics
    accepts = NameFilter(settings.groups, settings.groups_exclude).accepts
    facts.groups = sorted(one.group_id for one in await source.list_groups() if accepts(one.group_id))
    own = own_topics(settings)
    here = [one.name for one in own if one.at_source]
    there = [one.name for one in own if not one.at_source]
    if settings.take_over is not None:
        there.append(settings.take_over.offsets_topic)
    await ask_side(source, facts.source, facts.mirrors, here, facts.groups)
    workers = [settings.workers_group] if settings.shared else []
    await ask_side(target, facts.target, facts.mirrors.values(), there, [*workers, *facts.groups])
    if settings.take_over is not None and settings.take_over.offsets_topic in facts.target.topics:
        try:
            await must_be_idle(target, settings.take_over)
        except (StillRunningError, NotToldError) as error:
            facts.mirrormaker = error
    await ask_own_topics(source, target, facts)
    await _who_writes(target, facts)
    await _has_copied(source, target, facts)
    if settings.offsets == "identical":
        _whose_mirrors(facts)
    await ask_creation(target, facts)
    await ask_idempotence(target, facts)
    await ask_times(source, facts)
    await ask_transactions(target, facts)
    await ask_hanging(source, facts.source, facts.mirrors)
    await ask_hanging(target, facts.target, [*facts.mirrors.values(), settings.progress_topic])


async def _has_copied(source: ClusterClient, target: ClusterClient, facts: Facts) -> None:
    """A link that has not begun needs what MirrorMaker 2 knows of its copies."""
    told = facts.settings.take_over
    if told is None or facts.own_mirrors or told.offsets_topic in facts.target.topics:
        return
    try:
        await must_not_have_copied(source, target, facts.settings, told, facts.found.wanted)
    except NoProgressError as error:
        facts.mirrormaker = error


async def _who_writes(target: ClusterClient, facts: Facts) -> None:
    """Progress topics at the target tell which link made which topic."""
    own = facts.settings.progress_topic
    for topic in facts.target.topics:
        match = _PROGRESS.fullmatch(topic)
        if match is None:
            continue
        link = f"{match['source']}->{match['target']}"
        try:
            ledgers = await read_ledgers(target, link)
            made = {ledger.target.topic: ledger.target.topic_id for ledger in ledgers.values()}
            if topic == own:
                facts.own_mirrors |= made
                facts.copied = {
                    tp: one.next_source_offset for tp, one in ledgers.items() if _is_there(facts, one)
                }
                progress = await ProgressStore(target, own).refresh()
                facts.handed_back = bool(progress.mirrormaker and progress.mirrormaker.handed_back_ms)
                for name in progress.settings:  # made, and nothing was copied yet
                    facts.own_mirrors.setdefault(facts.mirrors.get(name, ""), "")
            else:
                facts.other_links |= dict.fromkeys(made, link)
        except ProtocolError as error:
            facts.target.refused[f"progress topic {topic}"] = str(error)


def _is_there(facts: Facts, ledger: PartitionLedger) -> bool:
    """Whether it tells of the topic that is at the source now."""
    topic = facts.source.topics.get(ledger.source.topic)
    return topic is not None and uuid_to_text(topic.topic_id) == ledger.source.topic_id


def _whose_mirrors(facts: Facts) -> None:
    """Mirrors with identical offsets say themselves whose they are."""
    for name, configs in facts.target.configs.items():
        text = mirror_text(configs)
        mirror = MirrorSource.read(text) if text is not None else None
        if mirror is not None and mirror.link == facts.settings.name:
            facts.own_mirrors[name] = uuid_to_text(facts.target.topics[name].topic_id)
        elif mirror is not None:
            facts.other_links[name] = mirror.link


def _clusters(facts: Facts) -> Iterator[Finding]:
    for side in (facts.source, facts.target):
        for node, why in side.silent.items():
            yield Finding(
                Level.ERROR,
                "connectivity",
                side.alias,
                f"broker {node} cannot be reached at the address it gives to clients: {why}",
                "correct advertised.listeners there, or the network between it and this machine",
            )
    without = sum(topic.topic_id == ZERO_UUID for topic in facts.source.topics.values())
    if without:
        yield Finding(
            Level.WARNING,
            "clusters",
            facts.source.alias,
            f"{without} topics have no topic id (a cluster before Kafka 2.8)",
            "there, a topic that is deleted and created again cannot be told from the old one",
        )


def creation(facts: Facts) -> Iterator[Finding]:
    """What the target refused to make or grow when it was asked to validate it only."""
    said: dict[tuple[str, str], list[str]] = {}
    for name, words in facts.cannot_create.items():
        if len(name) > LONGEST:  # `names` says that, and what to do about it
            continue
        reason = words.replace(name, "…")
        to_do = "grant CREATE and ALTER, or mend what it names"
        said.setdefault((f"these topics cannot be made or grown: {reason}", to_do), []).append(name)
    yield from together(Level.ERROR, "topics", facts.target.alias, said)
