"""Differences that somebody has taken note of: who, when and why, beside the difference, for ever.

Owns the rows of the progress topic that say so, and which differences of a ledger are still open. Nothing is
taken off the record: a gap stays a gap, but a link without open ones ends with 0. Each row names its
difference by everything that is known of it, so a gap that grows later is open again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from protocol.types import TopicPartition
from transfer.ledger import PartitionLedger

_log = logging.getLogger("isthmus.replicator")

PREFIX = "acknowledged/"


class Kind(StrEnum):
    """What a difference is. A gap stays the same gap when its topic is created again (`former_gaps`)."""

    GAP = "gap"
    SUPERSEDED = "superseded"


class Difference(NamedTuple):
    """Offsets `start ≤ offset < end`, of the source, or of the target for superseded copies."""

    tp: TopicPartition
    kind: Kind
    start: int
    end: int
    reason: str
    at_ms: int

    def __str__(self) -> str:
        return f"{self.kind} {self.tp.topic}-{self.tp.partition} {self.start}..{self.end} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Who took note of it, when (ms) and why."""

    by: str
    why: str
    at_ms: int


Acknowledged = Mapping[Difference, Acknowledgement]


def differences_of(tp: TopicPartition, ledger: PartitionLedger) -> list[Difference]:
    """All differences on record."""
    return [
        Difference(tp, kind, *stretch)
        for kind, stretches in (
            (Kind.GAP, ledger.former_gaps),
            (Kind.GAP, ledger.gaps),
            (Kind.SUPERSEDED, ledger.superseded),
        )
        for stretch in stretches
    ]


def open_differences(
    ledgers: Mapping[TopicPartition, PartitionLedger], acknowledged: Collection[Difference]
) -> list[Difference]:
    """Those of ledgers that nobody has acknowledged yet."""
    found = (differences_of(tp, ledger) for tp, ledger in ledgers.items() if ledger.differences)
    return open_among(chain.from_iterable(found), acknowledged)


def open_among(differences: Iterable[Difference], acknowledged: Collection[Difference]) -> list[Difference]:
    """Those of any kind of link that nobody has acknowledged yet."""
    return [found for found in differences if found not in acknowledged]


def row_of(difference: Difference, acknowledgement: Acknowledgement) -> tuple[bytes, bytes]:
    """The row of the progress topic."""
    tp, kind, start, end, reason, at_ms = difference
    key = f"{PREFIX}{tp.topic}/{tp.partition}/{kind}/{start}/{end}/{at_ms}"
    value = {"reason": reason, **asdict(acknowledgement)}
    return key.encode(), json.dumps(value, separators=(",", ":")).encode()


def read_row(key: bytes, value: bytes) -> tuple[Difference, Acknowledgement] | None:
    """What `row_of` wrote; None for a row that cannot be read: its difference stays open."""
    try:
        topic, partition, kind, start, end, at_ms = key.decode().removeprefix(PREFIX).split("/")
        data = json.loads(value)
        found = Difference(
            TopicPartition(topic, int(partition)),
            Kind(kind),
            int(start),
            int(end),
            str(data["reason"]),
            int(at_ms),
        )
        return found, Acknowledgement(str(data["by"]), str(data["why"]), int(data["at_ms"]))
    except (KeyError, TypeError, ValueError) as error:
        _log.error("an acknowledgement cannot be read: %r", error)
        return None
