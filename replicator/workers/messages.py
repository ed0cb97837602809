"""What workers of a link tell each other through the target's group coordinator.

Owns the two messages and their bytes: what a member says when it joins (`MemberState`: what it holds, how
much flows there), and what the leader's plan says to each (`Orders`). JSON, packed; unknown keys are left
alone, so that versions may stand side by side. Knows nothing of requests.
"""

from __future__ import annotations

import json
import os
import socket
import zlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any
from uuid import uuid4

from protocol.types import TopicPartition
from replicator.lease import process_start, this_machine

PROTOCOL_TYPE = "isthmus-link"
"""Of the group: no consumer can join it by mistake, and tools do not take it for consumers."""
PROTOCOL_NAME = "weighted-sticky-1"


class UnreadableError(ValueError):
    """Bytes that no worker of this version has written."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A process. `machine` and `started` tell processes of the same machine whether it still lives."""

    worker: str
    pid: int = 0
    host: str = ""
    machine: str = ""
    started: str = ""
    incarnation: str = ""
    """Unlike that of any other process, ever."""
    rest: str = ""
    """Where its REST answers, if it has one."""
    source: str = ""
    """Id of the cluster that it copies from; a version that does not say is taken at its word."""

    @classmethod
    def of_this_process(cls, rest: str = "") -> WorkerInfo:
        """Names this process: `host:pid`, and what makes it unlike any other of that number."""
        pid, host = os.getpid(), socket.gethostname()
        return cls(f"{host}:{pid}", pid, host, this_machine(), process_start(pid), str(uuid4()), rest)

    @property
    def dead(self) -> bool:
        """Whether it was a process of this machine that lives no more; False when in doubt."""
        if not self.machine or not self.started or self.machine != this_machine():
            return False
        return process_start(self.pid) != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class MemberState:
    """What a member says of itself. `held` are partitions that it copies or has not finished giving up."""

    info: WorkerInfo
    epoch: int = 0
    """The highest epoch that it knows of."""
    held: frozenset[TopicPartition] = frozenset()
    everything: bool = False
    """It began alone and may copy any partition, also those that it does not name."""
    rates: Mapping[TopicPartition, float] = field(default_factory=dict)
    """Bytes per second of what it holds."""
    settings: str = ""
    """Fingerprint of its settings: workers of one link should have the same."""

    def encode(self) -> bytes:
        rates: dict[str, dict[int, int]] = {}
        for tp, rate in self.rates.items():
            rates.setdefault(tp.topic, {})[tp.partition] = round(rate)
        return _pack(
            {
                "info": asdict(self.info),
                "epoch": self.epoch,
                "held": by_topic(self.held),
                "everything": self.everything,
                "rates": rates,
                "settings": self.settings,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> MemberState:
        """Raises UnreadableError."""
        try:
            value = _unpack(data)
            rates = {
                TopicPartition(topic, int(number)): float(rate)
                for topic, of in value["rates"].items()
                for number, rate in of.items()
            }
            held = frozenset(flat(value["held"]))
            settings = str(value.get("settings", ""))
            everything = bool(value.get("everything", False))
            return cls(_info(value["info"]), int(value["epoch"]), held, everything, rates, settings)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableError(f"what a worker said of itself cannot be read: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Orders:
    """The leader's word to one member. Each plan has an epoch, higher than all before it for this link."""

    epoch: int
    leader: str
    partitions: frozenset[TopicPartition] = frozenset()
    members: Mapping[str, WorkerInfo] = field(default_factory=dict)
    """All who take part, by member id."""
    source: str = ""
    """The cluster that this link copies from; a member whose own is another one has no part in it."""

    def encode(self) -> bytes:
        return _pack(
            {
                "epoch": self.epoch,
                "leader": self.leader,
                "partitions": by_topic(self.partitions),
                "members": {member: asdict(info) for member, info in self.members.items()},
                "source": self.source,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Orders:
        """Raises UnreadableError."""
        try:
            value = _unpack(data)
            partitions = frozenset(flat(value["partitions"]))
            members = {member: _info(info) for member, info in value["members"].items()}
            source = str(value.get("source", ""))
            return cls(int(value["epoch"]), str(value["leader"]), partitions, members, source)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableError(f"a plan of the link's leader cannot be read: {error!r}") from error


def _info(value: Mapping[str, Any]) -> WorkerInfo:
    known = {one.name for one in fields(WorkerInfo)}
    return WorkerInfo(**{key: found for key, found in value.items() if key in known})


def by_topic(tps: Collection[TopicPartition]) -> dict[str, list[int]]:
    """For JSON."""
    topics: dict[str, list[int]] = {}
    for tp in sorted(tps):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


def flat(topics: Mapping[str, Collection[int]]) -> list[TopicPartition]:
    """What `by_topic` put together."""
    return [TopicPartition(topic, int(number)) for topic, numbers in topics.items() for number in numbers]


def _pack(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1)


def _unpack(data: bytes) -> Any:
    try:
        return json.loads(zlib.decompress(data))
    except zlib.error as error:
        raise ValueError(str(error)) from error
