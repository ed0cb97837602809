"""Whether the ZooKeeper servers of a cluster serve, for `isthmus status`: each is asked by itself.

Owns the question (`srvr`), what its answers mean and the words for people. Both for servers that are started
here and for the operator's own (`zookeeper.connect`), which may be told not to answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from broker.control.embedded_zookeeper import four_letter_word
from topology.ensembles import zookeeper_members
from topology.models import Topology
from topology.runtime import HOST, Runtime

Address = tuple[str, int]
CLIENT_PORT = 2181
_STALE = (
    "brokers acknowledge no write once their sessions are over, nothing is elected, and what follows is as"
    " old as that"
)


class Server(StrEnum):
    """How one stands."""

    SERVES = "serves"
    NO_QUORUM = "no quorum"
    """It runs and says that it does not serve: it reaches too few of the others."""
    SILENT = "silent"
    """No answer: it does not run, hangs, or (the operator's own) takes TLS only."""
    UNTOLD = "untold"
    """It answers, and may not say (`4lw.commands.whitelist`)."""


@dataclass(frozen=True)
class ZooKeeperHealth:
    """Of one cluster, by name of the process, or by address where it is the operator's own."""

    servers: Mapping[str, Server]
    ours: bool
    heard: bool = False
    """Whether a broker says that the ensemble heard it of late."""

    @property
    def serves(self) -> bool | None:
        """None where nobody can say: the operator's servers need not answer such questions."""
        states = set(self.servers.values())
        if Server.SERVES in states:
            return True
        if self.ours or Server.NO_QUORUM in states:
            return False
        return None if self.heard or Server.UNTOLD in states else False

    @property
    def healthy(self) -> bool:
        """Nothing is known to be lost."""
        return not set(self.servers.values()) & {Server.NO_QUORUM, Server.SILENT} or self.serves is None

    def with_brokers(self, may_lead: Mapping[int, bool]) -> ZooKeeperHealth:
        """What the brokers say of it, too."""
        return replace(self, heard=any(may_lead.values()))

    def sentences(self, file: str) -> Iterator[str]:
        """What a person has to know and do; `file` is the topology's YAML."""
        lost = {name: state for name, state in self.servers.items() if state is not Server.SERVES}
        if self.serves is None:
            yield f"whether ZooKeeper serves is not known: {_named(lost)} (`srvr` is not answered)"
        elif not self.serves:
            yield f"no ZooKeeper server serves (too few run, or reach each other): {_STALE}"
            yield f"{_named(lost)}; {self._to_do(lost, file)}"
        elif silent := {name: state for name, state in lost.items() if state is not Server.UNTOLD}:
            yield f"ZooKeeper serves without {_named(silent)}; {self._to_do(silent, file)}"

    def _to_do(self, lost: Mapping[str, Server], file: str) -> str:
        silent = [name for name, state in lost.items() if state is Server.SILENT]
        if not self.ours:
            return "brokers go on by themselves once it serves again; that ensemble is not run from here"
        if silent:
            return f"isthmus start {' '.join(silent)} -f {file} starts what is stopped"
        return "they go on once they reach enough of the others"


async def zookeeper_health(topology: Topology, runtime: Runtime, alias: str) -> ZooKeeperHealth:
    """Of a cluster whose brokers run here, in a second or two."""
    cluster = topology.clusters[alias]
    connect = cluster.zookeeper.connect
    if connect is not None:
        asked = {f"{host}:{port}": (host, port) for host, port in servers_of(connect)}
    else:
        members = zookeeper_members(alias, cluster)
        asked = {member.name: (HOST, runtime.ports[member.name]) for member in members}
    states = await asyncio.gather(*(asyncio.to_thread(_ask, *address) for address in asked.values()))
    return ZooKeeperHealth(dict(zip(asked, states, strict=True)), ours=connect is None)


def servers_of(connect: str) -> Sequence[Address]:
    """Of `host:port,host:port/chroot`, where port 2181 may be left out."""
    found = []
    for server in connect.partition("/")[0].split(","):
        host, colon, port = server.strip().rpartition(":")
        named = colon and port.isdigit()
        found.append((host.strip("[]"), int(port)) if named else (server.strip().strip("[]"), CLIENT_PORT))
    return found


def _ask(host: str, port: int) -> Server:
    answer = four_letter_word(host, port, "srvr")
    if "\nMode: " in answer:
        return Server.SERVES
    if "not currently serving" in answer:
        return Server.NO_QUORUM
    return Server.UNTOLD if answer.strip() else Server.SILENT


def _named(servers: Mapping[str, Server]) -> str:
    states = dict.fromkeys(servers.values())
    found = {state: [name for name, its in servers.items() if its is state] for state in states}
    return "; ".join(f"{', '.join(names)}: {state}" for state, names in found.items())
