"""What `isthmus mirrors` asks before it shows or changes anything: how mirrors and both sides stand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from isthmus.commands.mirror_tables import Standing
from isthmus.output import note

if TYPE_CHECKING:
    from protocol.client import ClusterClient
    from replicator.acknowledgements import Difference
    from replicator.mirrors.left_behind import LeftBehind
    from replicator.mirrors.lineage import MirrorSource
    from replicator.mirrors.reversing import Parting
    from replicator.settings import ClusterEnd, LinkSettings

_ANSWER_S = 5.0


async def ask_risks(settings: LinkSettings, topics: tuple[str, ...], *, live: bool = False) -> Standing:
    """`live`: the source has to answer, and unless topics are named, none may lack its mirror."""
    from replicator.mirrors.assessing import find_mirrors, risks

    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(settings.target.at_once())
        if live:
            source: ClusterClient | None = await stack.enter_async_context(settings.source.at_once())
        else:
            source = await if_it_answers(settings.source, stack)
        mirrors = await find_mirrors(target, settings, topics)
        left = await _left_behind(source, None if topics else target, settings, live=live)
        found = await risks(source, target, settings, mirrors, whole=live)
        return Standing(
            found,
            left,
            await _lacks(target, settings, topics),
            await _fenced(source, settings, tuple(mirrors)),
            await _groups(source, target, settings, mirrors),
            await _made_again(target, settings, topics),
        )


async def _left_behind(
    source: ClusterClient | None, target: ClusterClient | None, settings: LinkSettings, *, live: bool
) -> LeftBehind:
    """What a change of roles of the whole link would leave behind, as far as both can be asked."""
    from protocol.errors import ProtocolError
    from replicator.mirrors.left_behind import LeftBehind, left_behind, refuse_to_leave_behind

    if source is None or target is None:
        return LeftBehind()
    if live:
        return await refuse_to_leave_behind(source, target, settings)
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await left_behind(source, target, settings)
    except (ProtocolError, TimeoutError):
        return LeftBehind()


async def _groups(
    source: ClusterClient | None,
    target: ClusterClient,
    settings: LinkSettings,
    mirrors: Mapping[str, MirrorSource],
) -> dict[str, str]:
    """Groups that would not go on where they are at the source, and why; a source has to answer."""
    from protocol.errors import ProtocolError
    from replicator.mirrors.switching import group_copy

    if source is None or not settings.sync_group_offsets:
        return {}
    try:
        async with asyncio.timeout(_ANSWER_S):
            copy = await group_copy(source, target, settings, mirrors)
            await copy.look()
            return {name: why for name, why in sorted(copy.reasons.items()) if why}
    except (ProtocolError, TimeoutError) as error:
        note(f"groups cannot be looked at: {str(error) or 'no answer in time'}")
        return {}


async def _fenced(source: ClusterClient | None, settings: LinkSettings, topics: tuple[str, ...]) -> list[str]:
    """Topics of the source that refuse writers for a promotion that was not ended, as far as it says so."""
    from protocol.errors import ProtocolError
    from replicator.mirrors.giving_up import fenced_topics

    if source is None:
        return []
    try:
        async with asyncio.timeout(_ANSWER_S):
            return sorted(await fenced_topics(source, settings, topics))
    except (ProtocolError, TimeoutError):  # half dead, or without the right: nobody waits for it
        return []


async def _lacks(
    target: ClusterClient, settings: LinkSettings, topics: tuple[str, ...]
) -> list[Difference] | None:
    """What nobody has acknowledged; None: it cannot be read now, which holds up no failover."""
    from protocol.errors import ProtocolError
    from replicator.mirrors.on_record import open_now

    try:
        async with asyncio.timeout(_ANSWER_S):
            return await open_now(target, settings, topics)
    except (ProtocolError, TimeoutError) as error:
        note(f"gaps on record cannot be read in {settings.target.alias}: {str(error) or 'no answer in time'}")
        return None


async def _made_again(
    target: ClusterClient, settings: LinkSettings, topics: tuple[str, ...]
) -> dict[str, list[dict[str, Any]]]:
    """By topic, the mirrors that were deleted before its mirror of now, as far as that can be read."""
    from protocol.errors import ProtocolError
    from replicator.mirrors.on_record import former_mirrors

    try:
        async with asyncio.timeout(_ANSWER_S):
            found = await former_mirrors(target, settings)
    except (ProtocolError, TimeoutError):  # `_lacks` says so, about the same topic
        return {}
    return {
        name: one.to_json()["former"] for name, one in sorted(found.items()) if not topics or name in topics
    }


async def ask_partings(
    settings: LinkSettings, back: LinkSettings, topics: tuple[str, ...], *, begun: bool = False
) -> list[Parting]:
    """`begun`: of topics too whose way back was interrupted; those that are back already have none."""
    from replicator.mirrors.left_behind import refuse_to_leave_behind
    from replicator.mirrors.reversing import partings, reversible

    async with both(settings) as (old, new):
        if begun and not topics:
            await refuse_to_leave_behind(new, old, back)
        home: set[str] | None = set() if begun else None
        return await partings(old, new, await reversible(old, new, settings, back.name, topics, home=home))


@asynccontextmanager
async def both(settings: LinkSettings) -> AsyncIterator[tuple[ClusterClient, ClusterClient]]:
    async with (
        settings.source.at_once() as source,
        settings.target.at_once() as target,
    ):
        yield source, target


async def if_it_answers(end: ClusterEnd, stack: AsyncExitStack) -> ClusterClient | None:
    from protocol.errors import ProtocolError

    client = end.client("isthmus-cli", timeout_s=_ANSWER_S, connect_timeout_s=_ANSWER_S)
    try:
        async with asyncio.timeout(_ANSWER_S):
            opened = await client.__aenter__()
    except (ProtocolError, TimeoutError):
        note(f"{end.alias} does not answer: what the link knew of it last counts")
        with contextlib.suppress(ProtocolError):
            await client.close()
        return None
    stack.push_async_exit(opened)
    return opened
