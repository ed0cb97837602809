"""What ZooKeeper servers of one ensemble have to be told of each other, as text of their configuration.

Owns the `server.N`, `group.N` and `weight.N` lines and which sets of servers are a quorum: more than half of
them, or with groups more than half of the weight in more than half of the groups (ZooKeeper's QuorumMaj and
QuorumHierarchical).
Must not start anything, nor know sites.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

WILDCARD = "0.0.0.0"
_SERVER = re.compile(r"(\d+)=(.+):(\d+):(\d+)")
_WEIGHT = re.compile(r"(\d+)=(\d+)")


class EnsembleError(ValueError):
    """The description of an ensemble cannot be; the message says what and how it should be."""


@dataclass(frozen=True)
class EnsembleServer:
    """One server as another one, or itself, reaches it.

    A server whose own `host` is WILDCARD tells nobody an address in elections: the others then use what they
    were configured with, so that it may have another address for each of them.
    """

    id: int
    host: str
    quorum_port: int
    election_port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`ID=HOST:QUORUM_PORT:ELECTION_PORT`. Raises EnsembleError."""
        match = _SERVER.fullmatch(text)
        if match is None:
            raise EnsembleError(
                f"'{text}' is no server of an ensemble: write ID=HOST:QUORUM_PORT:ELECTION_PORT"
            )
        return cls(int(match[1]), match[2], int(match[3]), int(match[4]))

    def __str__(self) -> str:
        return f"{self.id}={self.host}:{self.quorum_port}:{self.election_port}"


@dataclass(frozen=True)
class Quorums:
    """Which servers together may decide. Without `groups` each server has one vote."""

    servers: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    weights: Mapping[int, int] | None = None

    def holds(self, present: Collection[int]) -> bool:
        if not self.groups:
            return 2 * len(set(present)) > len(self.servers)
        counted = self.counted_groups
        won = [
            group for group in counted if 2 * self._weight(set(group) & set(present)) > self._weight(group)
        ]
        return 2 * len(won) > len(counted)

    @property
    def counted_groups(self) -> list[tuple[int, ...]]:
        """Those that have a say: one without any weight does not count."""
        return [group for group in self.groups if self._weight(group)]

    def _weight(self, servers: Collection[int]) -> int:
        return sum((self.weights or {}).get(server, 1) for server in servers)


@dataclass(frozen=True)
class Ensemble:
    """The ensemble as the server `own_id` sees it."""

    own_id: int
    servers: tuple[EnsembleServer, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    weights: Mapping[int, int] | None = None

    @classmethod
    def parse(
        cls, own_id: int, servers: Sequence[str], groups: Sequence[str] = (), weights: Sequence[str] = ()
    ) -> Self:
        """From `1=host:2888:3888`, groups `1:2:3`, weights `3=0`. Raises EnsembleError."""
        parsed = tuple(map(EnsembleServer.parse, servers))
        numbers = [server.id for server in parsed]
        if len(set(numbers)) < len(numbers):
            raise EnsembleError(f"servers {numbers} have an id twice")
        if own_id not in numbers:
            raise EnsembleError(f"server {own_id} is not among the servers of its ensemble: {numbers}")
        members = tuple(_group(text, numbers) for text in groups)
        grouped = sorted(number for group in members for number in group)
        if members and grouped != sorted(numbers):
            raise EnsembleError(
                f"groups hold the servers {grouped}, the ensemble has {sorted(numbers)}: each once"
            )
        weighed = dict(_weight(text, numbers) for text in weights)
        if weighed and not members:
            raise EnsembleError("weights count in groups only: give groups too")
        return cls(own_id, parsed, members, weighed)

    @property
    def quorums(self) -> Quorums:
        return Quorums(tuple(server.id for server in self.servers), self.groups, self.weights)

    @property
    def own(self) -> EnsembleServer:
        return next(server for server in self.servers if server.id == self.own_id)

    def settings(self) -> dict[str, str]:
        """Lines of zoo.cfg, beside those of every server."""
        lines = {f"server.{server.id}": str(server).partition("=")[2] for server in self.servers}
        for number, group in enumerate(self.groups, 1):
            lines[f"group.{number}"] = ":".join(map(str, group))
        if self.groups:
            lines |= {f"weight.{each.id}": str((self.weights or {}).get(each.id, 1)) for each in self.servers}
        return lines


def _group(text: str, known: Collection[int]) -> tuple[int, ...]:
    try:
        group = tuple(int(part) for part in text.split(":"))
    except ValueError:
        raise EnsembleError(f"'{text}' is no group of servers: write their ids with colons, 1:2:3") from None
    for number in group:
        if number not in known:
            raise EnsembleError(f"group {text}: there is no server {number}")
    return group


def _weight(text: str, known: Collection[int]) -> tuple[int, int]:
    match = _WEIGHT.fullmatch(text)
    if match is None or int(match[1]) not in known:
        raise EnsembleError(f"'{text}' is no weight of a server: write ID=WEIGHT for one of {sorted(known)}")
    return int(match[1]), int(match[2])
