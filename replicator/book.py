"""The book of a link: per partition its ledger, its state, and what happened to it last.

Owns booking what the engine reports and deciding what follows (a gap, a new start, a longer wait). It must
not do I/O: the worker asks it what to store and what to start. A gap is booked the moment it is known (I7).
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from protocol.types import TopicPartition
from replicator.entry_rows import Entry
from replicator.lanes import Way, observe
from replicator.metrics import LinkMetrics, PartitionMetrics
from transfer.endpoint import (
    AbortedError,
    Chunk,
    ClosedError,
    DisorderError,
    FaultKind,
    OutcomeUnknownError,
    PositionLostError,
    RefusedError,
    SourceFault,
    TransferError,
)
from transfer.ledger import Copied, Gap, book_into

_log = logging.getLogger("isthmus.replicator")

_AGAIN_SOON_S = 1.0
_UNSEEN_S = 5.0
"""An idle partition is looked at every half second; a busy machine takes its time."""
_DISORDER = (
    "nothing of it counts, and what is missing is read again from stored progress. This is a fault of"
    " isthmus: report it with this line; if it does not end, restart the worker"
)


class State(StrEnum):
    """How a partition stands."""

    OPENING = "opening"
    RUNNING = "running"
    WAITING = "waiting"
    """Stopped by something that is being cured; starts again by itself."""
    REFUSED = "refused"
    """The target refuses its next batch; tried again now and then, left out only as a dead letter."""
    HELD = "held"
    """It has a gap, and goes on once somebody acknowledges it (`on_gap: stop`)."""
    GONE = "gone"
    """The source topic is deleted."""
    PAUSED = "paused"
    """Somebody has paused it (`isthmus links pause`)."""


_TO_BEGIN: Final = frozenset({State.OPENING, State.WAITING, State.REFUSED, State.HELD})


@dataclass(slots=True, eq=False)
class Account:
    """One partition of the link."""

    tp: TopicPartition
    target: TopicPartition
    metrics: PartitionMetrics
    entry: Entry | None = None
    state: State = State.OPENING
    reason: str = ""
    not_before: float = 0.0
    starts: int = 0
    """How often it was begun here."""
    new_producer: bool = False
    """The next start must not go on with the old producer's sequence numbers."""
    read_again: bool = False
    """What was committed last is not known here: stored progress counts."""
    resume_at: int = -1
    """Where the source can go on after a fault; the gap up (or back) to there is booked by `settle`."""
    resume_reason: str = ""
    refused: RefusedError | None = None
    """What the target refused last; None once it was put aside."""
    source_end: int = -1
    """End of what can be read (committed) at the source, as last heard; -1: never, of this topic."""
    heard_at: float = -math.inf
    """When that was (monotonic)."""
    way: Way = field(default_factory=Way)
    lost: int = 0
    """Source offsets behind the copied ones that are gone there; once it goes on they are a gap."""
    seen_end: int = -1
    """The same as its opening and the chunks since then said: true of the topic that is read, not of one made
    anew."""
    unseen: bool = False
    """Nobody has read it for a while: there may be more than `seen_end`."""

    @property
    def known_end(self) -> int:
        """Where the topic that was read ends, or at least; -1: not known. That all of it was copied cannot be
        told when nobody looked; how much at least was not, can."""
        if self.unseen and (self.entry is None or self.seen_end <= self.entry.ledger.next_source_offset):
            return -1
        return self.seen_end

    def heard(self, end: int) -> None:
        """The source has just said where it ends."""
        self.source_end, self.heard_at = end, time.monotonic()

    @property
    def lag_bytes(self) -> int | None:
        """The lag in bytes, by the size of what was copied so far; None: not known."""
        lag, ledger = self.lag, self.entry.ledger if self.entry else None
        if not lag or ledger is None:
            return lag
        return lag * ledger.bytes // ledger.records if ledger.records else None

    @property
    def lag(self) -> int | None:
        """Readable source offsets that are not acknowledged yet, as last heard; None: never, or the topic is
        gone."""
        if self.entry is None or self.source_end < 0 or self.state is State.GONE:
            return None
        return max(self.source_end - self.entry.ledger.next_source_offset, 0)


@dataclass(slots=True)
class Book:
    """All partitions; the engine's observer."""

    metrics: LinkMetrics
    retry_refused_s: float
    changed: Callable[[], None]
    """Called when something should be started or stored soon."""
    accounts: dict[TopicPartition, Account] = field(default_factory=dict)
    dirty: dict[TopicPartition, float] = field(default_factory=dict)
    """Partitions with progress that is not stored, and since when (monotonic)."""
    storing: dict[TopicPartition, float] = field(default_factory=dict)
    """The same of those whose entries were taken to be stored."""
    bytes_not_stored: int = 0
    records_lane: str = ""
    """Why records are decoded on their way, if they are."""
    retries: Callable[[TopicPartition], int] = lambda _: 0
    """How often batches of a partition of the target were sent again, since it was opened."""
    once: bool = False
    """Progress is stored in the transactions of the data: what is booked here is stored already."""

    def account(self, tp: TopicPartition, target: TopicPartition) -> Account:
        """The account of a partition, made on first sight."""
        found = self.accounts.get(tp)
        if found is None:
            found = self.accounts[tp] = Account(tp, target, self.metrics.of(tp), way=Way(self.records_lane))
        return found

    def drop(self, tp: TopicPartition) -> None:
        """Forgets a partition that is another worker's now."""
        account = self.accounts.pop(tp, None)
        self.dirty.pop(tp, None)
        self.storing.pop(tp, None)
        if account is not None:
            self.metrics.drop(tp)

    # What the engine reports

    def copied(self, tp: TopicPartition, copied: Copied) -> None:
        """Books an acknowledged write. Raises DiscontinuityError."""
        account = self.accounts.get(tp)
        entry = account.entry if account is not None else None
        if account is None or entry is None:
            return
        position = entry.ledger.next_source_offset
        lost = book_into(entry.ledger, copied)
        if lost is not None:
            self._count_gap(account, lost.reason)
            _log.error("%s: the target lost source offsets %d..%d", tp, lost.start, lost.end)
        entry.producer = copied.producer or entry.producer
        entry.reached(copied, position)
        self.metrics.copied(account.metrics, copied)
        account.way.copied(copied)
        if not self.once:
            self.bytes_not_stored += copied.bytes
            self.mark(tp)
        elif not copied.runs:  # aborted records and markers: no transaction says that they were passed
            self.mark(tp)

    def seen(self, chunk: Chunk) -> None:
        """Notes how far the source is."""
        account = self.accounts.get(chunk.tp)
        if account is None:
            return
        end = chunk.last_stable_offset if chunk.last_stable_offset >= 0 else chunk.high_watermark
        account.heard(end)
        account.seen_end = end
        account.unseen = False

    def fault(self, fault: SourceFault) -> None:
        """The source stopped a partition."""
        account = self.accounts.get(fault.tp)
        if account is None:
            return
        went = fault.kind is FaultKind.DELETED or fault.kind is FaultKind.RECREATED
        unseen = not went or fault.unseen_s > _UNSEEN_S
        self._stop(account, State.WAITING, f"{fault.kind}: {fault.message}", 0.0, unseen=unseen)
        if fault.kind is FaultKind.RETENTION or fault.kind is FaultKind.TRUNCATED:
            account.resume_at = fault.resume_offset
            account.resume_reason = fault.kind
        elif fault.kind is FaultKind.DELETED:
            account.state = State.GONE
        elif fault.kind is FaultKind.FAILED:
            account.not_before = time.monotonic() + self.retry_refused_s
        _log.warning("%s %s", fault.tp, account.reason)

    def failed(self, tp: TopicPartition, error: TransferError) -> None:
        """The target stopped a partition."""
        account = self.accounts.get(tp)
        if account is None:
            return
        if isinstance(error, ClosedError):  # given up on purpose
            # What of it was committed before that, the book never hears: what it has is older.
            account.read_again = account.read_again or self.once
            if account.state is not State.WAITING:
                self._stop(account, State.WAITING, str(error), 0.0, unseen=False)
            return
        if isinstance(error, AbortedError):
            account.read_again = account.read_again or isinstance(error, OutcomeUnknownError)
            self._stop(account, State.WAITING, str(error), 0.0)
            return
        if isinstance(error, DisorderError):
            self.disorder(account, error)
            self._stop(account, State.WAITING, f"{error}; {_DISORDER}", _AGAIN_SOON_S)
            return
        if isinstance(error, PositionLostError):
            account.new_producer = True
            self._stop(account, State.WAITING, str(error), _AGAIN_SOON_S)
            _log.warning("%s waits a moment: %s", tp, account.reason)
        else:
            account.refused = error if isinstance(error, RefusedError) else None
            self._stop(account, State.REFUSED, str(error), self.retry_refused_s)
            _log.error("%s stands still: %s", tp, account.reason)
        self.metrics.errors.labels(self.metrics.name, "write").inc()

    def disorder(self, account: Account, error: DisorderError) -> None:
        """A write did not continue what was before it. Where it stands at the target, and with which sequence
        numbers, is not known here any more."""
        account.new_producer, account.read_again = True, account.read_again or self.once
        if not error.counted:
            error.counted = True
            self.metrics.disorders.inc()
            _log.error("%s: %s; %s", account.tp, error, _DISORDER)

    def finished(self, tp: TopicPartition) -> None:
        """A link has no end."""

    # What the worker does

    def settle(self, account: Account) -> None:
        """Books the gap of a partition that stands still, now that nothing of it is on its way; not before
        it is known what was committed last, behind which it begins."""
        if account.read_again:
            return
        entry, resume = account.entry, account.resume_at
        account.resume_at = -1
        if entry is None or resume < 0:
            return
        now_ms = time.time_ns() // 1_000_000
        position = entry.ledger.next_source_offset
        if resume != position:
            account.new_producer = True  # what comes now is not what may stand there under the same numbers
        entry.epoch = -1
        if resume > position:
            self.gap(account, Gap(position, resume, account.resume_reason, now_ms))
        elif resume < position:
            entry.ledger.rewind(resume, account.resume_reason, now_ms)
            entry.goes_back()
            self._count_gap(account, account.resume_reason)
            _log.error(
                "%s: %s: offsets %d..%d are copied anew", account.tp, account.resume_reason, resume, position
            )

    def gap(self, account: Account, gap: Gap) -> None:
        """Books a gap, at once everywhere."""
        if account.entry is not None:
            account.entry.ledger.add_gap(gap)
            self._count_gap(account, gap.reason)
            _log.error("%s: GAP %d..%d (%s)", account.tp, gap.start, gap.end, gap.reason)

    def adopt(self, account: Account, entry: Entry, new_gaps: list[Gap]) -> None:
        """Takes a partition's opened entry; `new_gaps` are in its ledger already."""
        account.entry = entry
        for gap in new_gaps:
            self._count_gap(account, gap.reason)
            _log.error("%s: GAP %d..%d (%s)", account.tp, gap.start, gap.end, gap.reason)
        account.metrics.gap_offsets.set(entry.ledger.missing)
        self.mark(account.tp)

    def mark(self, tp: TopicPartition) -> None:
        """The partition has something to store."""
        self.dirty.setdefault(tp, time.monotonic())

    def take_dirty(self) -> dict[TopicPartition, Entry]:
        """Entries to store now, until `stored` or `put_back`."""
        entries = {
            tp: account.entry
            for tp in self.dirty
            if (account := self.accounts.get(tp)) is not None and account.entry is not None
        }
        self.storing = {tp: self.dirty[tp] for tp in entries}
        self.dirty.clear()
        self.bytes_not_stored = 0
        return entries

    def put_back(self, entries: Iterable[TopicPartition]) -> None:
        """They could not be stored: they wait for it since they were marked first."""
        for tp in entries:
            since = self.storing.pop(tp, None)
            if tp in self.accounts:
                self.mark(tp)
                self.dirty[tp] = self.dirty[tp] if since is None else since

    def stored(self) -> None:
        """What was taken and not put back is at the target."""
        self.storing.clear()

    def observe(self) -> None:
        """Brings the gauges up to date."""
        states = Counter(account.state for account in self.accounts.values())
        for state in State:
            self.metrics.partitions.labels(self.metrics.name, state.value).set(states[state])
        observe(self.metrics, self.accounts.values(), self.retries)
        now = time.monotonic()
        waiting = (*self.dirty.values(), *self.storing.values())
        self.metrics.progress_age.set(now - min(waiting, default=now))

    @property
    def differences(self) -> int:
        """Gaps and superseded stretches in all ledgers."""
        return sum(account.entry.ledger.differences for account in self.accounts.values() if account.entry)

    @property
    def begins(self) -> bool:
        """Whether a partition is to be begun, at once or once something is mended."""
        return any(account.state in _TO_BEGIN for account in self.accounts.values())

    @property
    def refused(self) -> list[Account]:
        """Partitions that stand still for a reason that waiting does not cure."""
        return [account for account in self.accounts.values() if account.state is State.REFUSED]

    def _stop(
        self, account: Account, state: State, reason: str, pause_s: float, *, unseen: bool = True
    ) -> None:
        account.state = state
        account.unseen = account.unseen or unseen
        account.reason = reason
        account.not_before = time.monotonic() + pause_s
        self.changed()

    def _count_gap(self, account: Account, reason: str) -> None:
        # A label is of a few kinds: what stands in brackets is of one gap.
        self.metrics.gaps.labels(self.metrics.name, reason.partition(" (")[0]).inc()
        if account.entry is not None:
            account.metrics.gap_offsets.set(account.entry.ledger.missing)
        self.mark(account.tp)
        self.changed()

    def to_json(self) -> dict[str, Any]:
        """Partitions by `topic-n`, for the status."""
        return {str(tp): _account_json(account) for tp, account in sorted(self.accounts.items())}


def _account_json(account: Account) -> dict[str, Any]:
    row: dict[str, Any] = {
        "target": str(account.target),
        "state": account.state.value,
        "reason": account.reason,
        "starts": account.starts,
    }
    if account.entry is not None:
        ledger = account.entry.ledger
        row |= {
            "next_source_offset": ledger.next_source_offset,
            "target_end": ledger.runs.target_end,
            "records": ledger.records,
            "left_out": ledger.left_out,
            "bytes": ledger.bytes,
            "runs": len(ledger.runs),
            "gaps": [list(gap) for gap in ledger.gaps],
            "superseded": [list(stretch) for stretch in ledger.superseded],
            "notes": [list(note) for note in ledger.notes],
            "lag": account.lag,
            "lag_bytes": account.lag_bytes,
            "lost": account.lost,
            "latency": account.metrics.latency,
            **account.way.to_json(),
        }
    return row
