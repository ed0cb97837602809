"""How far an ad-hoc copy is, what of it stands still, and whether it has arrived.

Owns reading the accounts of a running copy, and what its end may say: that all is copied only where it is.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from protocol.types import TopicPartition
from replicator.acknowledgements import Kind
from replicator.book import Account, State
from replicator.connected import EXIT_DIFFERENCES, EXIT_FAILED, EXIT_OK, LinkStatus
from replicator.worker import Link
from transfer.endpoint import FaultKind

_GIVE_UP_TOPIC_S = 15.0
"""A topic that cannot be made at the target, or is not at the source any more, keeps a copy that is to end
waiting no longer than this."""
_GIVE_UP_END_S = 60.0
"""A source that shows less than it did may show it again when all its replicas have caught up."""


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far a copy is. `total` counts source offsets up to where it is to arrive (or to today's end)."""

    records: int
    bytes: int
    offsets: int
    total: int
    seconds: float
    bytes_per_second: float

    @property
    def seconds_left(self) -> float | None:
        """None while nothing can be said."""
        if self.offsets <= 0 or self.total <= 0 or self.seconds <= 0:
            return None
        return max(self.total - self.offsets, 0) * self.seconds / self.offsets


@dataclass(slots=True)
class CopyResult:
    """`left` names what was not copied, and why; `code` is the exit code."""

    code: int
    progress: CopyProgress
    left: dict[str, str] = field(default_factory=dict)
    gaps: dict[str, list[str]] = field(default_factory=dict)
    arrived: bool = True
    failed: bool = False
    """It ended by itself, before anybody stopped it; the log says why."""


class Watch:
    """Reads a running copy's accounts.

    `ends`: where it is to arrive; `stored`: what earlier runs had done (next source offset, records, bytes);
    `topic_ids`: of the source's topics, when those ends were theirs; `silent`: where none is known, and why.
    """

    def __init__(
        self,
        ends: Mapping[TopicPartition, int],
        stored: Mapping[TopicPartition, tuple[int, int, int]],
        topic_ids: Mapping[str, str],
        status: LinkStatus,
        silent: Mapping[TopicPartition, str],
    ) -> None:
        self._silent = {str(tp): why for tp, why in silent.items()}
        self._ends = ends
        self._topic_ids = topic_ids
        self._status = status
        self._begun = dict(stored)
        self._started = time.monotonic()
        self._last = (self._started, 0)
        self._speed = 0.0
        self._stuck_since: dict[TopicPartition, float] = {}

    @property
    def _link(self) -> Link | None:
        return cast("Link | None", self._status.link)  # a copy never runs mirrors

    def _accounts(self) -> Mapping[TopicPartition, Account]:
        return self._link.accounts if self._link is not None else {}

    def look(self) -> CopyProgress:
        """How far it is now."""
        records = size = offsets = total = 0
        for tp, account in self._accounts().items():
            if account.entry is None:
                continue
            ledger = account.entry.ledger
            begun = self._begun.setdefault(tp, (ledger.runs.source_start, 0, 0))
            records += max(ledger.records - begun[1], 0)
            size += max(ledger.bytes - begun[2], 0)
            end = max(self._ends.get(tp, 0), begun[0])
            offsets += max(min(ledger.next_source_offset, end) - begun[0], 0)
            total += end - begun[0]
        now = time.monotonic()
        before, bytes_before = self._last
        if now - before >= 1.0:
            self._speed = (size - bytes_before) / (now - before)
            self._last = (now, size)
        passed = now - self._started
        return CopyProgress(records, size, offsets, total, passed, self._speed or size / max(passed, 0.001))

    def result(self, code: int, *, until_now: bool) -> CopyResult:
        """Of a copy that has ended; `code` is its link's."""
        left = self.left() if until_now else self.standing()
        arrived = not until_now or self.done()
        gaps = self.gaps()
        failed = code == EXIT_FAILED
        if not failed:
            code = EXIT_FAILED if not arrived else EXIT_DIFFERENCES if left or gaps else EXIT_OK
        return CopyResult(code, self.look(), left, gaps, arrived, failed)

    def done(self) -> bool:
        """Whether everything is copied that can be."""
        stuck = self.left()
        return all(str(tp) in stuck or self._arrived(tp) for tp in self._ends)

    def _arrived(self, tp: TopicPartition) -> bool:
        account = self._accounts().get(tp)
        return (
            account is not None
            and account.entry is not None
            and account.entry.ledger.source.topic_id == self._topic_ids[tp.topic]
            and account.entry.ledger.next_source_offset >= self._ends[tp]
        )

    def left(self) -> dict[str, str]:
        """Partitions that waiting does not bring to where they are to arrive, and the reason."""
        return self._silent | {
            str(tp): why for tp in self._ends if not self._arrived(tp) and (why := self._why_not(tp))
        }

    def standing(self) -> dict[str, str]:
        """The same of a copy without an end: what stands still as it is stopped, and topics without a
        counterpart."""
        found = dict(self._link.topic_problems) if self._link is not None else {}
        for tp, account in self._accounts().items():
            at = account.entry.ledger.next_source_offset if account.entry is not None else 0
            why = _stands(account)
            if why and (account.state is not State.GONE or account.source_end > at):
                found[str(tp)] = why
        return found

    def _why_not(self, tp: TopicPartition) -> str:
        account = self._accounts().get(tp)
        if account is None or account.entry is None:
            return self._lasts(tp, self._unopened(tp.topic), _GIVE_UP_TOPIC_S)
        ledger = account.entry.ledger
        if ledger.source.topic_id != self._topic_ids[tp.topic]:
            return "the topic was created again meanwhile; the same command copies the new one"
        end, at = self._ends[tp], ledger.next_source_offset
        short = account.state is State.RUNNING and 0 <= account.source_end <= at < end
        why = f"the source has lost records: it ended at offset {end} before and ends at {at} now"
        return _stands(account) or self._lasts(tp, why if short else "", _GIVE_UP_END_S)

    def _unopened(self, topic: str) -> str:
        link = self._link
        if link is None:
            return ""
        gone = link.found.looked and topic not in link.found.wanted
        return link.topic_problems.get(topic) or ("it is not at the source any more" if gone else "")

    def _lasts(self, tp: TopicPartition, why: str, bound_s: float) -> str:
        """The reason once it has been there for so long."""
        if not why:
            self._stuck_since.pop(tp, None)
            return ""
        now = time.monotonic()
        return why if now - self._stuck_since.setdefault(tp, now) > bound_s else ""

    def gaps(self) -> dict[str, list[str]]:
        """What nobody has acknowledged, by partition."""
        found: dict[str, list[str]] = defaultdict(list)
        for one in self._link.open_differences() if self._link is not None else ():
            what = "gap" if one.kind is Kind.GAP else "copies at the target of what the source has lost:"
            found[str(one.tp)].append(f"{what} {one.start}..{one.end} ({one.reason})")
        return dict(found)


def _stands(account: Account) -> str:
    """Why a partition stands still that waiting does not cure; empty: it does not."""
    unreadable = account.state is State.WAITING and account.reason.startswith(f"{FaultKind.FAILED}:")
    if unreadable or account.state in (State.REFUSED, State.GONE):
        return account.reason or account.state.value
    return ""
