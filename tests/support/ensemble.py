"""Ensembles of real ZooKeeper servers for tests: in one place, or in sites whose links can be cut."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from broker.control.embedded_zookeeper import EmbeddedZooKeeper, four_letter_word
from broker.control.zookeeper_ensemble import WILDCARD, Ensemble, EnsembleServer
from tests.support.waiting import wait_until
from topology.network.network import Network
from topology.network.relay import Route
from topology.runtime import free_ports

HOST = "127.0.0.1"


class TestEnsemble:
    """`sites` are server ids by site, `groups` ids by group. Use it as a context in the main thread."""

    __test__ = False

    def __init__(
        self,
        directory: Path,
        sites: Mapping[str, Sequence[int]],
        *,
        groups: Sequence[Sequence[int]] = (),
        tick_ms: int = 500,
    ) -> None:
        self.sites = {site: tuple(members) for site, members in sites.items()}
        self._site_of = {number: site for site, members in self.sites.items() for number in members}
        self._directory, self._groups, self._tick_ms = directory, groups, tick_ms
        free = iter(free_ports((3 + 2 * len(self.sites)) * len(self._site_of)))
        self._client = {number: next(free) for number in self._site_of}
        self._quorum = {number: next(free) for number in self._site_of}
        self._election = {number: next(free) for number in self._site_of}
        self._links = _Links(tuple(self.sites)) if len(self.sites) > 1 else None
        self._relays = {
            (site, number, kind): next(free)
            for site in self.sites
            for number, home in self._site_of.items()
            for kind in ("quorum", "election")
            if home != site
        }
        self.servers = {number: self._server(number, tuple(self._site_of)) for number in self._site_of}

    def _server(self, number: int, members: Sequence[int]) -> EmbeddedZooKeeper:
        groups = [tuple(item for item in group if item in members) for group in self._groups]
        return EmbeddedZooKeeper(
            self._directory / f"zookeeper-{number}",
            port=self._client[number],
            tick_ms=self._tick_ms,
            fsync=False,
            heap_mb=64,
            start_timeout_s=60,
            ensemble=Ensemble(
                number,
                tuple(self._seen(number, other) for other in members),
                tuple(group for group in groups if group),
            ),
        )

    def _seen(self, number: int, other: int) -> EnsembleServer:
        """How one server reaches another: over the link, if that is in another site."""
        site = self._site_of[number]
        if self._site_of[other] == site:
            host = WILDCARD if other == number and self._links is not None else HOST
            return EnsembleServer(other, host, self._quorum[other], self._election[other])
        return EnsembleServer(
            other, HOST, self._relays[site, other, "quorum"], self._relays[site, other, "election"]
        )

    def __enter__(self) -> Self:
        try:
            if self._links is not None:
                real = {"quorum": self._quorum, "election": self._election}
                self._links.open(
                    [
                        Route(f"{number} {kind}", site, self._site_of[number], port, real[kind][number])
                        for (site, number, kind), port in self._relays.items()
                    ]
                )
            for server in self.servers.values():
                server.start()
            self.wait_serving(*self.servers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers.values():
            server.kill()
        if self._links is not None:
            self._links.close()

    @property
    def connect(self) -> str:
        return self.connect_to(*self.servers)

    def connect_to(self, *numbers: int) -> str:
        return ",".join(f"{HOST}:{self._client[number]}" for number in numbers)

    def servers_of(self, session: int) -> list[int]:
        """Servers that a client with this session is connected to now."""
        return [
            number
            for number, port in self._client.items()
            if f"sid=0x{session & (2**64 - 1):x}," in four_letter_word(HOST, port, "cons")
        ]

    def wait_serving(self, *numbers: int) -> None:
        wait_until(
            lambda: all(self.servers[number].serving() for number in numbers),
            f"servers {numbers} with a quorum",
        )

    def wait_not_serving(self, *numbers: int) -> None:
        wait_until(
            lambda: not any(self.servers[number].serving() for number in numbers),
            f"servers {numbers} without a quorum",
        )

    def cut(self) -> None:
        """All links between the sites."""
        assert self._links is not None
        self._links.set(up=False)

    def heal(self) -> None:
        assert self._links is not None
        self._links.set(up=True)

    def restart_alone(self, site: str) -> None:
        """What a person may do: take the other sites out of this one's configuration."""
        for number in self.sites[site]:
            self.servers[number].stop()
            self.servers[number] = self._server(number, self.sites[site]).start()
        self.wait_serving(*self.sites[site])


class _Links:
    """A simulated network in a thread of its own."""

    def __init__(self, sites: tuple[str, ...]) -> None:
        self._network = Network(sites, {})
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def open(self, routes: list[Route]) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._network.open(routes), self._loop).result(30)

    def set(self, *, up: bool) -> None:
        async def change() -> None:
            self._network.change(list(self._network.lines), up=up)

        asyncio.run_coroutine_threadsafe(change(), self._loop).result(30)

    def close(self) -> None:
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._network.close(), self._loop).result(30)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(30)
        self._loop.close()
