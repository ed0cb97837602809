"""Writing this worker's record, taking away those of workers that are gone, and seeing who carries too much.

Owns when that is done; the layout is `report`'s. The leader reads the others' rates here: when some worker
carries much less than the mean for two looks in a row, partitions are moved in a round of their own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from replicator.metrics import known
from replicator.parts import Parts
from replicator.phase import COPIES
from replicator.workers.crew import Crew
from replicator.workers.holdings import Holdings
from replicator.workers.listening import Hearing
from replicator.workers.report import EVERY_S, Standing, WorkerReport, reports

_UNEVEN_LOOKS = 10
"""So many reports in a row (half a minute) have to be uneven before partitions move for that alone."""


class Told(Protocol):
    """What the link says of itself in this process."""

    def problems(self) -> Mapping[str, str]:
        """By what they concern."""

    def since(self) -> Mapping[str, int]:
        """When they began (ms), as far as that is known."""

    def standing(self) -> Mapping[str, Any]:
        """Its state and, before it copies, what it waits for (`replicator.phase`)."""

    def groups(self) -> Mapping[str, Any]:
        """How groups stand at the target; empty where they are not synced."""


class Reporting:
    """Of one worker."""

    def __init__(self, parts: Parts, holdings: Holdings, crew: Crew, told: Told) -> None:
        self._parts = parts
        self._holdings = holdings
        self._crew = crew
        self._told = told
        self._began_ms = time.time_ns() // 1_000_000
        self._uneven = 0
        self._hearing = Hearing()
        self._said: object = None
        self._said_at = -EVERY_S

    async def once(self) -> None:
        """Writes what has changed, and the whole every few seconds. Raises ProtocolError."""
        if self._parts.phase.step is COPIES and not self._parts.may_write():
            return  # who waits to be let in may say so: it has no partitions
        shape = self._shape()
        due = time.monotonic() - self._said_at >= EVERY_S
        if shape == self._said and not due and not self._crew.former:
            return
        self._said, self._said_at = shape, time.monotonic()
        mine = self._report()
        rows: dict[str, bytes | None] = {mine.key: mine.encode()}
        members = {info.incarnation for info in self._crew.orders.members.values()}
        if self._crew.leading and members:
            everybody = self._hearing.judged(reports(self._parts.store.progress.notes))
            former = self._crew.former
            gone = [
                one
                for one in everybody
                if one.incarnation in former or (one.incarnation not in members and one.silent)
            ]
            rows |= {one.key: None for one in gone}
            if due:
                self._level(
                    [mine, *(one for one in everybody if one.incarnation != mine.incarnation)], members
                )
        await self._parts.store.save_notes(rows)
        self._crew.former.clear()

    async def end(self) -> None:
        """This worker ends in order: nothing of it is left to tell. Raises ProtocolError."""
        await self._parts.store.save_notes({self._report().key: None})

    def _level(self, everybody: list[WorkerReport], members: set[str]) -> None:
        present = {one.incarnation: one for one in everybody if one.incarnation in members and not one.silent}
        if len(present) < len(members) or len(members) < 2:
            self._uneven = 0
            return
        held = {key: set(one.partitions) for key, one in present.items()}
        rates = {tp: float(one.rate) for report in present.values() for tp, one in report.partitions.items()}
        self._uneven = self._uneven + 1 if self._crew.planning.is_uneven(held, rates) else 0
        if self._uneven >= _UNEVEN_LOOKS:
            self._uneven = 0
            self._crew.plan_again()

    def _shape(self) -> object:
        """What others hear of at once when it changes; looked at often, so it has to be cheap."""
        standing = self._told.standing()
        return (
            self._crew.leading,
            self._crew.orders.epoch,
            [standing.get(name) for name in ("state", "waits_for", "reason")],
            {tp: account.state for tp, account in self._parts.book.accounts.items()},
        )

    def _report(self) -> WorkerReport:
        crew, rates = self._crew, self._holdings.rates
        return WorkerReport(
            crew.info.worker,
            crew.info.incarnation,
            crew.info.host,
            crew.info.pid,
            crew.info.rest,
            crew.leading,
            crew.orders.epoch,
            self._began_ms,
            time.time_ns() // 1_000_000,
            dict(self._told.problems()),
            {
                tp: Standing(
                    account.state.value,
                    round(rates.get(tp, 0.0)),
                    -1 if account.lag is None else account.lag,
                    account.way.lane,
                    account.starts,
                    account.reason,
                    account.metrics.latency,
                    account.way.reason,
                    account.lag_bytes,
                    known(account.way.lags.seconds),
                )
                for tp, account in self._parts.book.accounts.items()
            },
            self._parts.guarantee(),
            dict(self._told.standing()),
            dict(self._told.since()),
            dict(self._told.groups()) if crew.leading else {},
            self._parts.metrics.latencies.topics(),
        )
