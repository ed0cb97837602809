"""What a link would do if it were started now: topics, their names at the target, where it begins.

Owns gathering it; changes nothing on either side. Whether the link is allowed to do it, and whether there is
room, is `preflight`'s.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from protocol.errors import ProtocolError
from replicator.drift import found_now
from replicator.progress import Progress, ProgressStore
from replicator.settings import LinkSettings

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
    return plan


async def _fill(plan: LinkPlan, settings: LinkSettings) -> None:
    async with (
        settings.source.at_once() as source,
        settings.target.at_once() as target,
    ):
        found = await found_now(source, target, settings)
        plan.not_copied = found.refused
        plan.topics = [
            {
                "topic": name,
                "at_target": wanted.target_name,
                "partitions": len(wanted.source.partitions),
                "exists": wanted.target is not None,
                "missing_partitions": wanted.missing_partitions,
            }
            for name, wanted in sorted(found.wanted.items())
        ]
        progress = await ProgressStore(target, settings.progress_topic).refresh()
        mirrormaker = settings.take_over is not None and settings.take_over.offsets_topic in (
            (await target.metadata(None)).topics
        )
        plan.begins = _begins(settings, progress, mirrormaker=mirrormaker)


def _begins(settings: LinkSettings, progress: Progress, *, mirrormaker: bool) -> str:
    if progress.initial is not None:
        return f"where it stopped: {settings.progress_topic} has progress"
    if mirrormaker and settings.take_over is not None:
        return f"where MirrorMaker 2 stopped: {settings.take_over.offsets_topic} is there"
    return f"at the {settings.start} records of each partition"
