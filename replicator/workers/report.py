"""What each worker says of itself every few seconds: a record `worker/…` of the progress topic.

Owns its layout and putting the workers of a link together (pure): who has which partition, how fast, and what
is wrong with it. A worker that is gone without a word leaves its record; the leader takes it away.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from protocol.types import TopicPartition

_log = logging.getLogger("isthmus.replicator")

PREFIX = "worker/"
EVERY_S = 3.0
RESTS_S = 1.0
"""At most, between two looks at whether to speak: who listens for it counts on that."""
STALE_S = 15.0
"""A worker of which nothing came for so long is not counted, whatever it said last."""


class Standing(NamedTuple):
    """A partition at its worker. `rate` in bytes per second, `lag` in source offsets (-1: not known), how
    often it was begun there, how late its records came lately (`p50`, `p99`, `max` in seconds), why it has
    its lane, and the lag in bytes and in seconds (since the link heard of the first missing record)."""

    state: str
    rate: int
    lag: int
    lane: str
    starts: int
    reason: str
    latency: Mapping[str, float] | None = None
    lane_reason: str = ""
    lag_bytes: int | None = None
    lag_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """One worker."""

    worker: str
    incarnation: str
    host: str = ""
    pid: int = 0
    rest: str = ""
    leads: bool = False
    epoch: int = 0
    began_ms: int = 0
    at_ms: int = 0
    problems: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, Standing] = field(default_factory=dict)
    guarantee: Mapping[str, Any] = field(default_factory=dict)
    """How it delivers and, exactly once, what its transactions do."""
    standing: Mapping[str, Any] = field(default_factory=dict)
    """Its state and, before it copies, what it waits for; empty (an older version): it copies."""
    problems_since: Mapping[str, int] = field(default_factory=dict)
    """When problems began (ms), where that is known."""
    groups: Mapping[str, Any] = field(default_factory=dict)
    """How groups stand at the target, from the worker that syncs them (`group_sync`); empty: nobody does."""
    latencies: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Records of the last minutes by topic and bucket (`replicator.latency`), for sums over workers."""

    silent: bool = False
    """Whether whoever read this takes it for gone (`listening`); no process says so of itself."""

    @property
    def key(self) -> str:
        """Of its record."""
        return PREFIX + self.incarnation

    @property
    def rate(self) -> int:
        """Bytes per second of all its partitions."""
        return sum(one.rate for one in self.partitions.values())

    def encode(self) -> bytes:
        topics: dict[str, dict[int, Standing]] = {}
        for tp, standing in self.partitions.items():
            topics.setdefault(tp.topic, {})[tp.partition] = standing
        value = self._fields() | {"partitions": topics}
        return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1)

    @classmethod
    def decode(cls, data: bytes) -> WorkerReport:
        """Raises ValueError."""
        try:
            value = json.loads(zlib.decompress(data))
            partitions = {
                TopicPartition(topic, int(number)): Standing(*standing[: len(Standing._fields)])
                for topic, numbers in value["partitions"].items()
                for number, standing in numbers.items()
            }
            latencies = {
                topic: {int(bucket): int(count) for bucket, count in counts.items()}
                for topic, counts in value.get("latencies", {}).items()
            }
            known = {one.name for one in fields(cls)}  # a newer version may say more
            return cls(
                **{name: of for name, of in value.items() if name in known}
                | {"partitions": partitions, "latencies": latencies}
            )
        except (zlib.error, AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"a worker's record cannot be read: {error!r}") from error

    def to_json(self) -> dict[str, Any]:
        """For people and machines; partitions are told apart."""
        row = self._fields() | {"partitions": len(self.partitions)}
        del row["latencies"], row["groups"]
        return row | {"rate": self.rate}

    def _fields(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}


def reports(notes: Mapping[bytes, bytes]) -> list[WorkerReport]:
    """All that are on record, by worker."""
    found = []
    for key, value in notes.items():
        if key.startswith(PREFIX.encode()):
            try:
                found.append(WorkerReport.decode(value))
            except ValueError as error:
                _log.error("%s", error)
    return sorted(found, key=lambda report: report.worker)


def owners(all_reports: list[WorkerReport]) -> dict[TopicPartition, WorkerReport]:
    """Who has which partition: of several that say so the one with the newest plan."""
    found: dict[TopicPartition, WorkerReport] = {}
    for report in sorted(all_reports, key=lambda one: (one.epoch, one.at_ms)):
        if not report.silent:
            found.update(dict.fromkeys(report.partitions, report))
    return found
