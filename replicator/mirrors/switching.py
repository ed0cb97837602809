"""Making mirrors writable: promote, when all of the source is here, and failover, now.

Owns the order of steps. Promote makes the source refuse writers first where the source can do that (isthmus),
else it looks twice whether they have stopped; it copies what is left, groups as well, and refuses where that
does not come to an end. Then, for both: a new era of leader epochs, an end to the source's transactions and
producers, and the topic is a mirror no more. Each step may be repeated: what was interrupted is run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from protocol.client import ClusterClient
from protocol.client.mirror_calls import Change
from protocol.types import TopicPartition
from replicator.acknowledgements import Kind
from replicator.filters import NameFilter
from replicator.mirrors import fencing
from replicator.mirrors.assessing import (
    Risk,
    SwitchRefused,
    broken_off,
    risks,
    same_lineage,
    source_ends,
    stands,
)
from replicator.mirrors.broken_off import take_off
from replicator.mirrors.copying import Copying
from replicator.mirrors.fencing import Say
from replicator.mirrors.groups import GroupCopy
from replicator.mirrors.growing import grow
from replicator.mirrors.lineage import MirrorSource, next_era
from replicator.mirrors.on_record import OnRecord
from replicator.mirrors.partition import MirrorPartition
from replicator.mirrors.terms import portions, raised, settled
from replicator.settings import LinkSettings

_QUIET_S: Final = 2.0
"""So long nobody may write to a source that cannot be fenced."""
_TICK_S: Final = 0.1


@dataclass(slots=True)
class Switched:
    """What was done. `risks` are as they were when the topics became writable."""

    topics: list[str]
    risks: list[Risk]
    aborted_transactions: int = 0
    fenced: bool = False
    groups: dict[str, str | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "topics": self.topics,
            "records_lost": sum(risk.records or 0 for risk in self.risks),
            "lost_is_known": all(risk.is_exact for risk in self.risks),
            "aborted_transactions": self.aborted_transactions,
            "source_fenced": self.fenced,
            "groups": self.groups,
            "partitions": [risk.to_json() for risk in self.risks],
        }


async def failover(
    source: ClusterClient | None,
    target: ClusterClient,
    settings: LinkSettings,
    mirrors: Mapping[str, MirrorSource],
    say: Say,
) -> Switched:
    """Now, with what is here; a source that does not answer, or only half, holds up nothing. Raises
    ProtocolError."""
    lost = await risks(source, target, settings, mirrors)
    aborted = await open_for_writing(target, mirrors, say)
    return Switched(sorted(mirrors), lost, aborted)


async def promote(
    source: ClusterClient,
    target: ClusterClient,
    settings: LinkSettings,
    mirrors: Mapping[str, MirrorSource],
    say: Say,
    *,
    timeout_s: float,
    fence: bool = True,
    abort_open: bool = False,
) -> Switched:
    """With everything that the source has, or not at all. Raises SwitchRefused, ProtocolError.

    Transactions that are open may end yet, in time; `abort_open`: they are aborted here, and whoever commits
    one at the source after that was told wrong.
    """
    await same_lineage(source, mirrors)
    fenced: dict[str, str] = {}
    try:
        if fence:
            fenced = await fencing.fence(source, target, settings, mirrors)
            say(
                "the source refuses writers"
                if fenced
                else "the source is no cluster of isthmus: writers are not fenced, they have to be stopped"
            )
        await grow(source, target, mirrors, say)
        await _take_off_what_is_late(source, target, mirrors, fenced, say)
        await _drain(source, target, settings, mirrors, fenced, say, timeout_s=timeout_s)
        if not abort_open:
            await _transactions_end(source, target, settings, mirrors, fenced, say, timeout_s=timeout_s)
        groups = await _copy_groups(source, target, settings, mirrors)
        lost = await risks(source, target, settings, mirrors, whole=True, fenced=fenced)
        if any(risk.records for risk in lost):
            raise SwitchRefused("the source was written to while groups were copied: stop its writers first")
    except BaseException:
        await fencing.unfence(source, target, settings, fenced)
        raise

    async def still_fenced() -> None:
        """Another promotion that failed meanwhile has perhaps given the source back to its writers."""
        if fenced:
            await source_ends(source, [TopicPartition(risk.topic, risk.partition) for risk in lost], fenced)

    aborted = await open_for_writing(target, mirrors, say, still_fenced)
    return Switched(sorted(mirrors), lost, aborted, bool(fenced), groups)


# -- before


async def _take_off_what_is_late(
    source: ClusterClient,
    target: ClusterClient,
    mirrors: Mapping[str, MirrorSource],
    fenced: Mapping[str, str],
    say: Say,
) -> None:
    """Mirrors that a promotion before has ended, and whose source was written to after that, go on."""
    standing, copied = await broken_off(source, target, mirrors)
    ends = await source_ends(source, list(copied), fenced) if copied else {}
    late = {tp: end for tp, end in copied.items() if ends[tp] > end}
    if late:
        say(f"{len(late)} partitions were ended by a switch that was broken off, and go on as mirrors")
        await take_off(target, {tp: mirrors[tp.topic].text for tp in late}, standing, late)


async def _drain(
    source: ClusterClient,
    target: ClusterClient,
    settings: LinkSettings,
    mirrors: Mapping[str, MirrorSource],
    fenced: Mapping[str, str],
    say: Say,
    *,
    timeout_s: float,
    still: bool | None = None,
) -> None:
    """Copies what is left: a link that runs as well does no harm, since each batch has one place. `still`:
    the source has to end twice where it did, by default where it is not fenced."""
    still = not fenced if still is None else still
    standing, ended = await broken_off(source, target, mirrors)
    tps = list(standing)
    record = OnRecord(target, settings)

    async def note(part: MirrorPartition, kind: Kind, start: int, end: int, reason: str) -> bool:
        say(f"{part.tp}: offsets {start} to {end} are gone before they were copied: {reason}")
        return await record.note(part, kind, start, end, reason)

    copying = Copying(source, target, settings.flow, note=note)
    copying.partitions = {tp: MirrorPartition(tp, mirrors[tp.topic].text) for tp in tps if tp not in ended}
    task = asyncio.create_task(copying.run())
    try:
        async with asyncio.timeout(timeout_s):
            before: dict[TopicPartition, int] = {}
            while True:
                ends = await source_ends(source, tps, fenced)
                left = await _left(copying, ends, ended, say)
                if not left and (not still or ends == before):
                    return
                if not left:
                    before = ends
                    say(f"all is here; looking whether writers have stopped, for {_QUIET_S:g} s")
                    await asyncio.sleep(_QUIET_S)
                if task.done():
                    task.result()
    except TimeoutError:
        raise SwitchRefused(
            f"not everything is here after {timeout_s:g} s ({_behind(copying)}): are writers of the source"
            " stopped? Nothing was changed; --timeout gives it longer, isthmus mirrors failover does not wait"
        ) from None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _transactions_end(
    source: ClusterClient,
    target: ClusterClient,
    settings: LinkSettings,
    mirrors: Mapping[str, MirrorSource],
    fenced: Mapping[str, str],
    say: Say,
    *,
    timeout_s: float,
) -> None:
    """Until no transaction is open: whoever commits one at the source after the switch would lose it."""
    end = asyncio.get_running_loop().time() + timeout_s
    while opened := {
        tp: stand.open_transactions
        for tp, stand in (await stands(target, mirrors)).items()
        if stand.open_transactions
    }:
        if asyncio.get_running_loop().time() > end:
            where = ", ".join(sorted(str(tp) for tp in opened)[:3])
            raise SwitchRefused(
                f"transactions are open in {len(opened)} partitions ({where}): end their producers,"
                " wait for transaction.timeout.ms, or say --abort-open. Nothing was changed"
            )
        say(f"transactions are open in {len(opened)} partitions; waiting for their end")
        await asyncio.sleep(_TICK_S)
        await _drain(source, target, settings, mirrors, fenced, say, timeout_s=timeout_s, still=False)


async def _left(
    copying: Copying, ends: Mapping[TopicPartition, int], ended: Mapping[TopicPartition, int], say: Say
) -> int:
    """Waits for a moment; how many offsets are left of what the source had. `ended`: as far as mirrors are
    that are not copied to any more."""
    await asyncio.sleep(_TICK_S)
    stopped = [part for part in copying.partitions.values() if part.needs_a_person]
    if stopped:
        raise SwitchRefused(f"{stopped[0].tp}: {stopped[0].problem}")
    left = sum(
        end if part.source_end < 0 else max(end - part.end, 0) + part.to_let_go
        for tp, part in copying.partitions.items()
        for end in [ends[tp]]
    ) + sum(max(ends[tp] - end, 0) for tp, end in ended.items())
    if left:
        say(f"{left} records are left to copy")
    return left


def _behind(copying: Copying) -> str:
    behind = [part for part in copying.partitions.values() if not part.level]
    texts = [f"{part.tp} is {part.lag} records behind" for part in behind[:3]]
    problems = [f"{part.tp}: {part.problem}" for part in behind if part.problem][:1]
    return "; ".join([*texts, *problems]) or "it is level now, but was written to again and again"


async def _copy_groups(
    source: ClusterClient,
    target: ClusterClient,
    settings: LinkSettings,
    mirrors: Mapping[str, MirrorSource],
) -> dict[str, str | None]:
    if not settings.sync_group_offsets:
        return {}
    groups = await group_copy(source, target, settings, mirrors)
    await groups.once()
    return groups.reasons


async def group_copy(
    source: ClusterClient,
    target: ClusterClient,
    settings: LinkSettings,
    mirrors: Mapping[str, MirrorSource],
) -> GroupCopy:
    """Of what the mirrors hold now. Raises ProtocolError."""
    ends = {tp: stand.high_watermark for tp, stand in (await stands(target, mirrors)).items()}
    taken = NameFilter(settings.groups, settings.groups_exclude)
    ids = {name: mirror.topic_id for name, mirror in mirrors.items()}
    return GroupCopy(source, target, taken, lambda: ends, OnRecord(target, settings).store, lambda: ids)


# -- the switch itself


async def _nothing() -> None:
    """No more is asked."""


async def open_for_writing(
    target: ClusterClient,
    mirrors: Mapping[str, MirrorSource],
    say: Say,
    last_look: Callable[[], Awaitable[None]] = _nothing,
) -> int:
    """Ends the mirrors; returns how many transactions were aborted. `last_look`, before there is no way back,
    raises where it must not be. Raises ProtocolError."""
    found = await stands(target, mirrors)
    texts = {tp: mirrors[tp.topic].text for tp in found}
    aborted = done = 0
    for some in portions(found):
        stood = {tp: found[tp] for tp in some}
        eras = {
            tp: next_era(max(stand.leader_epoch, stand.last_epoch))
            for tp, stand in stood.items()
            if stand.last_epoch != stand.leader_epoch  # else it was ended in this term, by a try before
        }
        if eras:
            stood |= await raised(target, texts, eras)
        aborted += await settled(target, texts, stood)
        done += len(some)
        if len(found) > len(some):
            say(f"{done} of {len(found)} partitions have begun a term of their own")
    await last_look()
    await fencing.changed(target, {name: Change(None, mirror.text) for name, mirror in mirrors.items()})
    await fencing.open_now(target, texts)
    say(f"writable: {', '.join(sorted(mirrors))}")
    return aborted
