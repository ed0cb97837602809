"""What a process that mirrors says of itself at the target every few seconds: a record `worker/…`, as workers
of other links do, so that `links status` on any host can tell.

Owns putting it together and writing it, and taking away those of processes that are gone. Nothing is decided
by these records: two processes that mirror the same do each other no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from protocol.types import TopicPartition
from replicator.lanes import RAW
from replicator.metrics import known, known_count
from replicator.mirrors.counting import Counting
from replicator.mirrors.partition import MirrorPartition, State
from replicator.progress import ProgressStore
from replicator.rates import Rates
from replicator.troubles import now_ms
from replicator.workers.listening import Hearing
from replicator.workers.messages import WorkerInfo
from replicator.workers.report import EVERY_S, Standing, WorkerReport, reports
from replicator.workers.reporting import Told

RUNNING: Final = "running"
OPENING: Final = "opening"
WAITING: Final = "waiting"


def state_of(part: MirrorPartition) -> str:
    """In the words of other links' partitions; `stopped`: it needs a person."""
    if part.state is State.COPYING:
        return RUNNING
    if part.needs_a_person:
        return part.state.value
    return WAITING if part.problem else OPENING


class Telling:
    """Of one process. `partitions` gives those that it mirrors now."""

    def __init__(
        self,
        store: ProgressStore,
        partitions: Callable[[], Mapping[TopicPartition, MirrorPartition]],
        counting: Counting,
        told: Told,
        rest: str = "",
    ) -> None:
        """`rest` is where this process answers requests about its links."""
        self._store = store
        self._partitions = partitions
        self._counting = counting
        self._told = told
        self._info = WorkerInfo.of_this_process(rest)
        self._began_ms = now_ms()
        self._rates = Rates()
        self._hearing = Hearing()
        self._ready = False
        self._said: object = None
        self._said_at = -EVERY_S

    async def once(self) -> None:
        """Writes what has changed, and the whole every few seconds. Raises ProtocolError."""
        if not self._ready:
            await self._store.load()  # makes the topic
            self._ready = True
        shape, now = self._shape(), time.monotonic()
        due = now - self._said_at >= EVERY_S
        if shape == self._said and not due:
            return
        if due:
            self._rates.measure({tp: part.bytes for tp, part in self._partitions().items()}, now)
        mine = self._report()
        rows: dict[str, bytes | None] = {
            one.key: None
            for one in self._hearing.judged(reports(self._store.progress.notes))
            if one.incarnation != mine.incarnation and one.silent
        }
        await self._store.save_notes(rows | {mine.key: mine.encode()})
        self._said, self._said_at = shape, now

    async def end(self) -> None:
        """This process ends in order: nothing of it is left to tell. Raises ProtocolError."""
        if self._ready:
            await self._store.save_notes({self._report().key: None})

    def _shape(self) -> object:
        standing = self._told.standing()
        return (
            [standing.get(name) for name in ("state", "waits_for", "reason")],
            {tp: state_of(part) for tp, part in self._partitions().items()},
        )

    def _report(self) -> WorkerReport:
        info = self._info
        return WorkerReport(
            info.worker,
            info.incarnation,
            info.host,
            info.pid,
            info.rest,
            leads=True,
            began_ms=self._began_ms,
            at_ms=now_ms(),
            problems=dict(self._told.problems()),
            partitions={tp: self._standing(part) for tp, part in self._partitions().items()},
            standing=dict(self._told.standing()),
            problems_since=dict(self._told.since()),
            groups=dict(self._told.groups()),
            latencies=self._counting.topic_latencies(),
        )

    def _standing(self, part: MirrorPartition) -> Standing:
        lags = self._counting.lags(part)
        return Standing(
            state_of(part),
            round(self._rates.known.get(part.tp, 0.0)),
            part.lag if part.source_end >= 0 else -1,
            RAW,
            part.starts,
            part.problem or "",
            self._counting.latency(part.tp),
            "",
            known_count(lags.bytes),
            known(lags.seconds),
        )
