"""Giving a promotion up that was broken off: the source takes writes again, and the mirrors stay mirrors.

Owns the look at both sides, and the way back. It is refused as long as a target might take writes too: two
sides that are written to part, and one of them loses what it took in. What the promotion has written behind
the source's end already, control batches, is cut off again.
"""

from __future__ import annotations

from protocol.client import ClusterClient
from protocol.client.mirror_calls import Change
from replicator.mirrors.assessing import SwitchRefused, broken_off
from replicator.mirrors.broken_off import take_off
from replicator.mirrors.fencing import Say, changed
from replicator.mirrors.lineage import FENCED, MirrorSource
from replicator.mirrors.topics import mirror_text
from replicator.settings import LinkSettings


async def fenced_topics(
    source: ClusterClient, settings: LinkSettings, topics: tuple[str, ...] = ()
) -> dict[str, str]:
    """Topics of the link that refuse writers for a promotion, with what they say. Raises ProtocolError."""
    taken = settings.topic_filter()
    here = {name for name, topic in (await source.metadata(None)).topics.items() if not topic.error}
    names = [name for name in sorted(here) if (name in topics if topics else taken.accepts(name))]
    found: dict[str, str] = {}
    for name, configs in (await source.describe_configs(names) if names else {}).items():
        text = mirror_text(configs)
        known = None if text is None else MirrorSource.read(text)
        if text is not None and known is not None and known.link == f"{FENCED} for {settings.name}":
            found[name] = text
    return found


async def give_up(
    source: ClusterClient,
    target: ClusterClient | None,
    settings: LinkSettings,
    fenced: dict[str, str],
    say: Say,
) -> None:
    """`target` None: nobody looks whether it takes writes. Raises SwitchRefused, ProtocolError."""
    if target is not None:
        await _still_mirrors(source, target, settings, fenced)
    await changed(source, {name: Change(None, text) for name, text in fenced.items()})
    say(f"{settings.source.alias} takes writes again: {', '.join(sorted(fenced))}")


async def _still_mirrors(
    source: ClusterClient, target: ClusterClient, settings: LinkSettings, fenced: dict[str, str]
) -> None:
    here, there = (await source.metadata(list(fenced))).topics, (await target.metadata(None)).topics
    names = [name for name in fenced if name in there and not there[name].error]
    mirrors = {name: MirrorSource.of(settings.name, source.cluster_id, here[name].topic_id) for name in names}
    for name, configs in (await target.describe_configs(names) if names else {}).items():
        if mirror_text(configs) != mirrors[name].text:
            raise SwitchRefused(
                f"{name} in {settings.target.alias} is no mirror of it any more and may be written to:"
                f" nothing was changed. isthmus mirrors promote '{settings.name}' goes on with the others,"
                f" and reverse '{settings.name}' makes {settings.source.alias} the mirror"
            )
    standing, copied = await broken_off(source, target, mirrors)
    await take_off(target, {tp: mirrors[tp.topic].text for tp in copied}, standing, copied)
