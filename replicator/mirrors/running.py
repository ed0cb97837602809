"""A link with identical offsets as a running thing: finding topics, copying, groups, and what is known of the
source. Ends with the exit codes of every link: 0 all is copied so far, 1 it could not go on, 3 gaps or
stopped partitions.

Owns the periodic jobs. What goes wrong with one job is said once and tried again; copying goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final

from prometheus_client import CollectorRegistry

from protocol.client import ClusterClient
from protocol.errors import ProtocolError
from protocol.types import TopicPartition
from replicator.acknowledgements import Kind
from replicator.connected import EXIT_DIFFERENCES, EXIT_FAILED, EXIT_OK, LinkStatus, run_connected
from replicator.filters import NameFilter
from replicator.group_rules import in_short
from replicator.jobs import Jobs
from replicator.link_report import mirrors_json
from replicator.metrics import LinkMetrics, known, known_count
from replicator.mirrors.copying import Copying
from replicator.mirrors.counting import Counting
from replicator.mirrors.groups import GroupCopy
from replicator.mirrors.keeping import Keeping
from replicator.mirrors.on_record import OnRecord
from replicator.mirrors.partition import MirrorPartition, State
from replicator.mirrors.standing import Witness, gaps_of_before
from replicator.mirrors.standstill import Standstill
from replicator.mirrors.telling import Telling
from replicator.mirrors.topics import Mirrored, MirrorTopics
from replicator.phase import COPIES, ENDS, MIRRORS, Phase
from replicator.reach import Reach
from replicator.settings import LinkSettings
from replicator.workers.report import RESTS_S

_log = logging.getLogger("isthmus.replicator")

_WITNESS_S: Final = 1.0
_OBSERVE_S: Final = 1.0
_LOOK_S: Final = 2.0
_REPORT_S: Final = 0.5
_DRAIN_TICK_S: Final = 0.05


async def run_mirrors(
    settings: LinkSettings,
    stop: asyncio.Event,
    registry: CollectorRegistry,
    status: LinkStatus | None = None,
    rest: str = "",
) -> int:
    """Runs the link until `stop` is set; the exit code says how it ended. `rest`: see `Mirrors`."""

    def make(source: ClusterClient, target: ClusterClient, metrics: LinkMetrics, reach: Reach) -> Mirrors:
        return Mirrors(settings, source, target, metrics, reach, rest)

    return await run_connected(settings, stop, registry, status, make, rest)


class Mirrors:
    """The running parts of one link."""

    def __init__(
        self,
        settings: LinkSettings,
        source: ClusterClient,
        target: ClusterClient,
        metrics: LinkMetrics,
        reach: Reach | None = None,
        rest: str = "",
    ) -> None:
        """`rest` is where this process answers requests about its links, for others to know."""
        self._settings = settings
        self._source = source
        self._target = target
        self._metrics = metrics
        self._reach = reach
        self._witness = Witness(target, settings.name)
        self._record = OnRecord(target, settings)
        self._counting = Counting(metrics, self._record)
        self.copying = Copying(
            source,
            target,
            settings.flow,
            cuts=settings.on_truncation == "cut",
            rate_limit=settings.rate_limit,
            note=self._record.note,
            on_ended=self._ended,
            on_copied=self._counting.copied,
        )
        self._topics = MirrorTopics(settings, source, target)
        self._keeping = Keeping(settings, source, target, self._record.store, lambda: self.found.topics)
        self._groups = GroupCopy(
            source,
            target,
            NameFilter(settings.groups, settings.groups_exclude),
            self._ends,
            self._record.store,
            lambda: {tp.topic: part.topic_id for tp, part in self.partitions.items()},
        )
        self._standstill = Standstill()
        self.found = Mirrored()
        self._made: dict[str, bytes] = {}
        """Ids of the mirrors' topics."""
        self._poke = asyncio.Event()
        self._jobs = Jobs(settings.name, metrics)
        self._phase = Phase(MIRRORS)
        self._telling = Telling(self._record.store, lambda: self.partitions, self._counting, self, rest)

    @property
    def partitions(self) -> dict[TopicPartition, MirrorPartition]:
        return self.copying.partitions

    async def run(self, stop: asyncio.Event) -> int:
        """Until `stop`, or until something breaks that waiting does not cure."""
        settings, every = self._settings, self._jobs.every
        work = [
            every("topics", lambda: settings.refresh_topics_interval_s, self._look),
            every("standing", lambda: _WITNESS_S, self._tell),
            every("metrics", lambda: _OBSERVE_S, self._observe),
            self.copying.run(),
        ]
        if settings.sync_group_offsets:
            work.append(every("groups", lambda: settings.sync_group_offsets_interval_s, self._groups.once))
        if settings.sync_topic_configs:
            interval_s = settings.sync_topic_configs_interval_s
            work.append(every("topic settings", lambda: interval_s, self._keeping.sync_settings))
        # Behind those that make the progress topic: who reads it before it is there keeps them waiting.
        work.append(every("differences on record", lambda: _LOOK_S, self._read_record))
        work.append(every("report", lambda: _REPORT_S, self._telling.once, longest_rest_s=RESTS_S))
        jobs = [asyncio.create_task(one) for one in work]
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({stopping, *jobs}, return_when=asyncio.FIRST_COMPLETED)
            broken = next((job.exception() for job in jobs if job.done() and not job.cancelled()), None)
            if broken is None:
                await self._drain(settings.drain_s)
        finally:
            self._phase.enter(ENDS)
            for task in (stopping, *jobs):
                task.cancel()
            await asyncio.gather(stopping, *jobs, return_exceptions=True)
        if broken is not None:
            _log.error("%s cannot go on: %r", settings.name, broken, exc_info=broken)
            return EXIT_FAILED
        await self._last()
        # Without the record nobody knows whether there are gaps.
        return EXIT_DIFFERENCES if self.differences or not self._record.has_read else EXIT_OK

    @property
    def differences(self) -> list[str]:
        """What is not as at the source, will not be by itself, and nobody has acknowledged."""
        gaps = [
            f"{each.tp}: offsets {each.start} to {each.end}: {each.reason}" for each in self._record.open()
        ]
        stopped = [
            f"{tp}: {part.problem}" for tp, part in self.partitions.items() if part.state is State.STOPPED
        ]
        return [*gaps, *stopped, *(f"{topic}: {text}" for topic, text in self.found.problems.items())]

    # -- jobs

    async def _look(self) -> None:
        """Topics come and grow; those that are no mirrors any more leave."""
        found = await self._topics.look(make=self._settings.refresh_topics or not self.partitions)
        for name, text in (found.problems | found.ended).items():
            if name not in self.found.problems and name not in self.found.ended:
                _log.warning("%s: %s is not mirrored: %s", self._settings.name, name, text)
        self.found = found
        for tp in self.partitions.keys() - found.partitions.keys():
            if tp.topic in found.ended or tp.topic in found.problems:
                del self.partitions[tp]
        new = found.partitions.keys() - self.partitions.keys()
        if new:  # before `_tell` writes there
            before = await gaps_of_before(self._target, self._settings.name, new)
            await self._record.take_over(before, found.partitions)
        for tp in new:
            self.partitions[tp] = MirrorPartition(tp, found.partitions[tp])
        self._fill_anew(found)
        self.copying.poke()
        if self._phase.step is MIRRORS:
            self._phase.enter(COPIES)
        if self._reach is not None:
            await self._reach.look(self._source, self._target)

    def _fill_anew(self, found: Mirrored) -> None:
        """Mirrors that were deleted and made again: where nothing new is written, no append is refused."""
        now = {name: one.target.topic_id for name, one in found.topics.items() if one.target is not None}
        again = {name for name, topic_id in now.items() if self._made.get(name, topic_id) != topic_id}
        self._made |= now
        for tp, part in self.partitions.items():
            if tp.topic in again:
                part.realign(asyncio.get_running_loop().time())

    async def _read_record(self) -> None:
        await self._record.read()
        for name in await self._record.note_mirrors(self.found.topics):
            _log.error(
                "%s: %s was deleted at the target: its mirror is filled anew", self._settings.name, name
            )
            self._metrics.mirrors_made_again.inc()
        for part in self.partitions.values():
            if part.state is State.HELD and self._record.lets_pass(part):
                part.let_go()
                self.copying.poke()

    def _ended(self, tp: TopicPartition) -> None:
        self._poke.set()

    async def _tell(self) -> None:
        await self._witness.write(self.partitions.values(), time.time_ns() // 1_000_000)

    async def _observe(self) -> None:
        self._counting.look(self.partitions)
        if (text := self._standstill.look(self.partitions)) is not None:
            _log.warning("%s: %s", self._settings.name, text)

    def _ends(self) -> dict[TopicPartition, int]:
        return {tp: part.end for tp, part in self.partitions.items() if part.state is State.COPYING}

    # -- the end

    async def _drain(self, seconds: float) -> None:
        """What is fetched already goes to the target."""
        end = asyncio.get_running_loop().time() + seconds
        while any(part.queue for part in self.partitions.values()):
            if asyncio.get_running_loop().time() > end:
                _log.warning("what was on its way was given up; the next start goes on where the mirror ends")
                return
            await asyncio.sleep(_DRAIN_TICK_S)

    async def _last(self) -> None:
        jobs = [self._tell, self._record.read, self._observe]
        if self._settings.sync_group_offsets:
            jobs.append(self._groups.once)
        for job in (*jobs, self._telling.end):
            try:
                async with asyncio.timeout(5):
                    await job()
            except (ProtocolError, TimeoutError) as error:
                _log.warning("%s: at the end: %s", self._settings.name, error or "no time left")

    def problems(self) -> dict[str, str]:
        """What is wrong now, by what it concerns."""
        reach = {} if self._reach is None else self._reach.troubles.texts
        return {**reach, **self._jobs.troubles.texts, **self.found.problems, **self._keeping.problems()}

    def since(self) -> dict[str, int]:
        """When those of the problems began of which that is known (ms)."""
        reach = {} if self._reach is None else self._reach.troubles.since
        return {**reach, **self._jobs.troubles.since}

    def groups(self) -> dict[str, Any]:
        """How groups stand at the target; empty where they are not synced."""
        return in_short(self._groups.reasons) if self._settings.sync_group_offsets else {}

    def standing(self) -> dict[str, Any]:
        """Its state and, before it copies, what it waits for."""
        return self._phase.to_json(self._jobs.troubles.get(self._phase.step.job), link=self._settings.name)

    def to_json(self) -> dict[str, Any]:
        """The link's status."""
        return {
            "link": self._settings.name,
            "offsets": "identical",
            **self.standing(),
            "source_cluster": self._source.cluster_id,
            "target_cluster": self._target.cluster_id,
            "problems": self.problems(),
            "topics": sorted({tp.topic for tp in self.partitions}),
            "topics_not_copied": dict(self.found.ended),
            "mirrors": mirrors_json(self._record.store.progress.mirrors),
            "partitions": {
                str(tp): self._partition(tp, part) for tp, part in sorted(self.partitions.items())
            },
            "groups": dict(self._groups.reasons),
            "differences": self.differences,
        }

    def _partition(self, tp: TopicPartition, part: MirrorPartition) -> dict[str, Any]:
        lags = self._counting.lags(part)
        return part.to_json() | {
            "gaps": self._gaps(tp),
            "latency": self._counting.latency(tp),
            "lag": part.lag if part.source_end >= 0 else None,
            "lag_bytes": known_count(lags.bytes),
            "lag_seconds": known(lags.seconds),
            "lag_record_time_seconds": known(lags.record_seconds),
        }

    def _gaps(self, tp: TopicPartition) -> list[tuple[int, int, str]]:
        return [(each.start, each.end, each.reason) for each in self._record.of(tp) if each.kind is Kind.GAP]
