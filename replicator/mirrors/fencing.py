"""Who is written to, as both sides' topics say it: a source that refuses writers for a promotion, and takes
them again where that comes to nothing.

Owns the changes of `isthmus.mirror.source` and the wait until all leaders have heard of them. Must not copy
anything, nor decide when roles change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from protocol.client import ClusterClient, NotSupportedError
from protocol.client.mirror_calls import Change, MirrorStand
from protocol.client.retry import RetryPolicy
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import TopicPartition
from replicator.mirrors.assessing import SwitchRefused, broken_off
from replicator.mirrors.lineage import FENCED, MirrorSource
from replicator.mirrors.terms import portions, told
from replicator.mirrors.topics import mirror_text
from replicator.settings import LinkSettings

_log = logging.getLogger("isthmus.replicator")

Say = Callable[[str], None]
_HEARD: Final = RetryPolicy(total_s=30)
_TOPICS_AT_ONCE: Final = 100


async def fence(
    source: ClusterClient,
    target: ClusterClient,
    settings: LinkSettings,
    mirrors: Mapping[str, MirrorSource],
) -> dict[str, str]:
    """The source's topics refuse writers from now on; what they say of it, by topic. Empty: it cannot."""
    there = (await target.metadata(list(mirrors))).topics
    try:
        said = {name: mirror_text(of) for name, of in (await source.describe_configs(list(mirrors))).items()}
    except KafkaError:  # no right to see that: then it is no cluster of isthmus
        said = {}
    fenced: dict[str, str] = {}
    try:
        for name in mirrors:
            mark = MirrorSource.of(f"{FENCED} for {settings.name}", target.cluster_id, there[name].topic_id)
            fenced[name] = mark.text
        new = {name: Change(text, None) for name, text in fenced.items() if said.get(name) != text}
        await changed(source, new)  # others were fenced by a try before, which was killed
        await heard(source, fenced)
    except NotSupportedError:
        return {}
    except BaseException:
        await unfence(source, target, settings, fenced)
        raise
    return fenced


async def unfence(
    source: ClusterClient, target: ClusterClient, settings: LinkSettings, fenced: Mapping[str, str]
) -> None:
    """But for topics that another promotion has begun to make writable at the target, or has made so."""
    try:
        begun = await switched(source, target, settings, fenced) if fenced else {}
    except ProtocolError as error:
        begun = dict.fromkeys(fenced, f"nobody knows how its mirror stands: {error}")
    for name, text in fenced.items():
        try:
            if name in begun:
                raise SwitchRefused(begun[name])
            await source.change_mirrors({name: Change(None, text)})
        except ProtocolError as error:
            _log.error(
                "%s at the source still refuses writers: %s. isthmus mirrors promote goes on with it,"
                " isthmus mirrors unfence gives it up",
                *(name, error),
            )


async def switched(
    source: ClusterClient, target: ClusterClient, settings: LinkSettings, fenced: Collection[str]
) -> dict[str, str]:
    """Of these topics of the source those that the target may take writes for, now or soon, and why. Raises
    ProtocolError."""
    here, there = (await source.metadata(list(fenced))).topics, (await target.metadata(list(fenced))).topics
    names = [name for name in fenced if name in there and not there[name].error]
    mirrors = {name: MirrorSource.of(settings.name, source.cluster_id, here[name].topic_id) for name in names}
    found: dict[str, str] = {}
    for name, configs in (await target.describe_configs(names) if names else {}).items():
        if mirror_text(configs) != mirrors[name].text:
            found[name] = f"in {settings.target.alias} it is no mirror of it any more and may be written to"
            del mirrors[name]
    _, begun = await broken_off(source, target, mirrors)
    for tp in begun:
        found[tp.topic] = f"its mirror in {settings.target.alias} has begun a term of its own"
    return found


async def changed(client: ClusterClient, changes: Mapping[str, Change]) -> None:
    """Some topics at a time. Raises ProtocolError."""
    for names in portions(changes, _TOPICS_AT_ONCE):
        await client.change_mirrors({name: changes[name] for name in names})


async def heard(client: ClusterClient, texts: Mapping[str, str]) -> None:
    """Until the leaders of all partitions know whose mirror their topic is: before, they take writes."""
    topics = (await client.metadata(list(texts))).topics
    wanted = {
        TopicPartition(name, index): text for name, text in texts.items() for index in topics[name].partitions
    }
    await told(client, wanted, lambda answer: isinstance(answer, MirrorStand), _HEARD)


async def open_now(client: ClusterClient, texts: Mapping[TopicPartition, str]) -> None:
    """Until the leaders of these partitions take writes, as their topics are mirrors no more."""
    await told(client, texts, _takes_writes, _HEARD)


def _takes_writes(answer: MirrorStand | BaseException) -> bool:
    return isinstance(answer, KafkaError) and answer.code is ErrorCode.INVALID_TOPIC_EXCEPTION
