"""Truncate and restore: an old primary that has come back takes its role again, and the other its own.

Owns the sequence: reverse, let the link back copy what was written meanwhile, promote the old primary with
the other side fenced, and make that side the mirror that it was. Interrupted, it goes on where it was; topics
that have their roles again already have to be left out then.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.client import ClusterClient
from protocol.client.mirror_calls import Change
from protocol.types import TopicPartition
from replicator.mirrors.assessing import SwitchRefused, find_mirrors
from replicator.mirrors.fencing import Say, changed, heard
from replicator.mirrors.left_behind import refuse_to_leave_behind
from replicator.mirrors.lineage import HEADROOM, MirrorSource
from replicator.mirrors.reversing import Parting, reverse, reversible
from replicator.mirrors.switching import Switched, promote
from replicator.mirrors.terms import portions, raised
from replicator.settings import LinkSettings


@dataclass(slots=True)
class Restored:
    partings: list[Parting]
    switched: Switched

    def to_json(self) -> dict[str, Any]:
        return {
            "cut": [parting.to_json() for parting in self.partings],
            "restored": self.switched.to_json(),
        }


async def truncate_and_restore(
    old: ClusterClient,
    new: ClusterClient,
    settings: LinkSettings,
    back: LinkSettings,
    topics: tuple[str, ...],
    folder: Path,
    say: Say,
    *,
    timeout_s: float,
    abort_open: bool = False,
) -> Restored:
    """`settings` are those of the link from old to new, `back` of its counterpart. Raises ProtocolError."""
    if not topics:  # a topic that the new side made since would be left there
        await refuse_to_leave_behind(new, old, back)
    home: set[str] = set()
    names = await reversible(old, new, settings, back.name, topics, home=home)
    cut, switched = [], Switched([], [])
    if names:
        cut = await reverse(old, new, names, back.name, folder, say)
        mirrors = await find_mirrors(old, back, tuple(names))
        try:
            switched = await promote(
                new, old, back, mirrors, say, timeout_s=timeout_s, fence=True, abort_open=abort_open
            )
        except SwitchRefused as error:
            raise SwitchRefused(
                f"{error}; but for this: {settings.source.alias} is a mirror of {settings.target.alias} now,"
                " which is written to as before. Run it again when that is settled"
            ) from None
    switched.topics = sorted({*names, *home})
    await mirror_again(old, new, settings, switched.topics, say)
    return Restored(cut, switched)


async def mirror_again(
    source: ClusterClient,
    target: ClusterClient,
    settings: LinkSettings,
    names: list[str],
    say: Say,
) -> None:
    """The fenced side is the link's mirror again: it is a part of the other's log, so nothing is cut."""
    here, there = (await source.metadata(names)).topics, (await target.metadata(names)).topics
    texts: dict[str, str] = {}
    changes: dict[str, Change] = {}
    for name in names:
        fence = MirrorSource.of(f"fenced for {_back(settings)}", source.cluster_id, here[name].topic_id)
        text = MirrorSource.of(settings.name, source.cluster_id, here[name].topic_id).text
        changes[name], texts[name] = Change(text, fence.text), text
    await changed(target, changes)
    await heard(target, texts)
    of = {TopicPartition(name, index): texts[name] for name in names for index in there[name].partitions}
    for tp in of:
        source.forget_leader(tp)
    await source.learn_leaders(of)
    for some in portions(of):
        await raised(target, of, {tp: (await source.leader(tp)).epoch + HEADROOM for tp in some})
    say(f"mirrors of {settings.name} again: {', '.join(sorted(names))}")


def _back(settings: LinkSettings) -> str:
    return f"{settings.target.alias}->{settings.source.alias}"
