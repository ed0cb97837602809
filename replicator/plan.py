"""What a link would do if it were started now: topics, their names at the target, where it begins.

Owns gathering it; changes nothing on either side. Whether the link is allowed to do it, and whether there is
room, is `preflight`'s.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from protocol.client import ClusterClient
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from replicator.discovery import Found
from replicator.drift import found_now
from replicator.mirrormaker.connect_offsets import NotToldError, left_progress, read_offsets
from replicator.mirrormaker.returning import news
from replicator.mirrormaker.takeover import must_not_have_copied
from replicator.preflight.names import LONGEST, SHORTER
from replicator.progress import Progress, ProgressStore
from replicator.settings import LinkSettings

_RIGHTS = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)
_CONNECT_S = 5.0
_ANSWER_S = 20.0


@dataclass(slots=True)
class LinkPlan:
    """`problem` says which cluster could not be asked; then the rest is not known."""

    link: str
    topics: list[dict[str, Any]] = field(default_factory=list)
    """By source name: `topic`, `at_target`, `partitions`, `exists`, `missing_partitions`."""
    not_copied: dict[str, str] = field(default_factory=dict)
    begins: str = ""
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "link": self.link,
            "topics": self.topics,
            "topics_not_copied": self.not_copied,
            "begins": self.begins,
            "problem": self.problem,
        }


async def plan_of(settings: LinkSettings) -> LinkPlan:
    """Asks both clusters."""
    plan = LinkPlan(settings.name)
    for end in (settings.source, settings.target):
        try:
            async with asyncio.timeout(_CONNECT_S), end.at_once():
                pass
        except (ProtocolError, TimeoutError) as error:
            silent = f"{end.alias} ({end.bootstrap}): no answer within {_CONNECT_S:g} s"
            plan.problem = str(error) or silent
            return plan
    try:
        async with asyncio.timeout(_ANSWER_S):
            await _fill(plan, settings)
    except (ProtocolError, TimeoutError) as error:
        plan.problem = str(error) or f"no answer within {_ANSWER_S:g} s"
        if isinstance(error, KafkaError) and error.code in _RIGHTS:
            plan.problem += f"; isthmus links check '{settings.name}' -f FILE says which rights it lacks"
    return plan


async def _fill(plan: LinkPlan, settings: LinkSettings) -> None:
    async with (
        settings.source.at_once() as source,
        settings.target.at_once() as target,
    ):
        found = await found_now(source, target, settings)
        topics_of_plan(plan, found)
        progress = await ProgressStore(target, settings.progress_topic).refresh()
        if progress.initial is not None:
            plan.begins = await begins_again(target, settings, progress, found)
            return
        told = settings.take_over
        mirrormaker = told is not None and await left_progress(target, told.offsets_topic) is not None
        if told is not None and not mirrormaker:
            await must_not_have_copied(source, target, settings, told, found.wanted)
        plan.begins = _begins(settings, plan, mirrormaker=mirrormaker)


def topics_of_plan(plan: LinkPlan, found: Found) -> None:
    """A mirror whose name no topic can have is none that will be made."""
    plan.not_copied = dict(found.refused)
    for name, wanted in sorted(found.wanted.items()):
        if len(wanted.target_name) > LONGEST:
            plan.not_copied[name] = (
                f"its mirror's name would have {len(wanted.target_name)} characters, and no topic may have"
                f" more than {LONGEST}: {SHORTER}"
            )
            continue
        plan.topics.append(
            {
                "topic": name,
                "at_target": wanted.target_name,
                "partitions": len(wanted.source.partitions),
                "exists": wanted.target is not None,
                "missing_partitions": wanted.missing_partitions,
            }
        )


async def begins_again(
    target: ClusterClient, settings: LinkSettings, progress: Progress, found: Found
) -> str:
    """Of a link that has run before, as its start decides it (`returning`). Raises NotToldError."""
    told, seen = settings.take_over, progress.mirrormaker
    back = seen is not None and seen.handed_back_ms > 0
    stopped = f"where it stopped: {settings.progress_topic} has progress"
    if told is None:
        return stopped + (
            "; what MirrorMaker 2 has copied since the link was handed back to it may be copied twice, for"
            " this link is not told to take over from it"
            if back
            else ""
        )
    try:
        offsets = await read_offsets(target, told, settings.source.alias)
    except NotToldError:
        if back:
            raise
        return stopped
    if not back and (offsets is None or not news(progress, offsets.positions, found.wanted)):
        return stopped
    why = "the link was handed back to it" if back else "it has copied since the link ended"
    how = "is there" if offsets is not None else "is not there, so its offset syncs and its records tell"
    return f"where MirrorMaker 2 stopped: {why}, and {told.offsets_topic} {how}"


def _begins(settings: LinkSettings, plan: LinkPlan, *, mirrormaker: bool) -> str:
    told = settings.take_over
    if mirrormaker and told is not None:
        return f"where MirrorMaker 2 stopped: {told.offsets_topic} is there"
    text = f"at the {settings.start} records of each partition"
    if any(row["exists"] for row in plan.topics):
        text += ", behind what topics that are there already hold"
        if told is not None:
            text += f" ({told.offsets_topic}, where MirrorMaker 2 would have its progress, is not there)"
    return text
