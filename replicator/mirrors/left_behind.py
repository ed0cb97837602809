"""Topics of a link that a change of roles leaves behind: at the source they take writes, and nothing at the
target is a mirror of them.

Owns finding them and what to do. Whoever is sent to the target would miss what they hold, and with topics
made on first use begin an empty one of that name there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from protocol.client import ClusterClient
from replicator.mirrors.assessing import SwitchRefused
from replicator.mirrors.lineage import MirrorSource
from replicator.mirrors.topics import MirrorTopics, mirror_text
from replicator.settings import LinkSettings


class LeftBehind(NamedTuple):
    """`missing`: not at the target at all. `apart`: what stands there instead, by topic."""

    missing: tuple[str, ...] = ()
    apart: Mapping[str, str] = {}

    @property
    def texts(self) -> dict[str, str]:
        """By topic."""
        return {**dict.fromkeys(self.missing, "there is no mirror of it yet"), **self.apart}


async def left_behind(source: ClusterClient, target: ClusterClient, settings: LinkSettings) -> LeftBehind:
    """Of all topics that the link is to mirror; those that the source has given up for the target's are not
    among them. Changes nothing. Raises ProtocolError."""
    found = await MirrorTopics(settings, source, target).look(make=False)
    apart = {**found.ended, **found.problems}
    names = [*found.missing, *apart]
    configs = await source.describe_configs(names) if names else {}

    def is_given_up(name: str) -> bool:
        text = mirror_text(configs[name])
        known = None if text is None else MirrorSource.read(text)
        return known is not None and known.cluster_id == target.cluster_id

    return LeftBehind(
        tuple(sorted(name for name in found.missing if not is_given_up(name))),
        {name: why for name, why in sorted(apart.items()) if not is_given_up(name)},
    )


async def refuse_to_leave_behind(
    source: ClusterClient, target: ClusterClient, settings: LinkSettings
) -> LeftBehind:
    """Raises SwitchRefused if topics are missing at the target: the link makes them within seconds."""
    found = await left_behind(source, target, settings)
    if found.missing:
        some = ", ".join(found.missing[:5]) + (" ..." if len(found.missing) > 5 else "")
        raise SwitchRefused(
            f"{settings.target.alias} has no mirror of {some}, and what {settings.source.alias} holds of that"
            " would be left behind. Let the link run until it has made one, name the topics that are to be"
            " promoted (--topic), or take the others out of the link (topics_exclude). Nothing was changed"
        )
    return found
