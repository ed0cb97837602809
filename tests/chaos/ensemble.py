"""Real ZooKeeper servers of one ensemble; their clients and each other they reach through the network.

Owns who is where. A server tells the others in elections at which address it listens, which would lead past
the relay: so none says one, and each dials what it was configured with.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from broker.control.zookeeper_ensemble import WILDCARD, EnsembleServer
from broker.control.zookeeper_ensemble import Ensemble as Members
from tests.chaos.network import Network
from tests.support.waiting import wait_until
from topology.runtime import free_ports

_START_S = 120.0


class PatientServer(EmbeddedZooKeeper):
    """Waits longer for the others than in production: a machine with thirty waiting processes is no fault."""

    def _config(self) -> str:
        return super()._config() + "initLimit=30\nsyncLimit=8\n"


class Ensemble:
    """Of `size` servers. `launch` also says to the network who is who."""

    def __init__(self, directory: Path, network: Network, size: int = 3) -> None:
        self._network = network
        numbers = range(1, size + 1)
        free = iter(free_ports(3 * size))
        own = {number: EnsembleServer(number, WILDCARD, next(free), next(free)) for number in numbers}
        clients = {number: next(free) for number in numbers}
        seen = {}
        for number, server in own.items():
            ports = {"z": clients[number], "q": server.quorum_port, "e": server.election_port}
            relayed = {letter: network.listen(f"{letter}{number}") for letter in ports}
            for letter, port in ports.items():
                network.point(f"{letter}{number}", port)
            seen[number] = EnsembleServer(number, "127.0.0.1", relayed["q"], relayed["e"])
        self.servers = {
            number: PatientServer(
                directory / f"zookeeper-{number}",
                port=clients[number],
                fsync=False,  # processes are killed here, machines do not lose power
                start_timeout_s=_START_S,
                ensemble=Members(number, tuple({**seen, number: own[number]}.values())),
            )
            for number in numbers
        }
        # The kernel ties a server's life to the thread that started it: these last.
        self._launchers = ThreadPoolExecutor(size, "ZooKeeper")

    @property
    def connect(self) -> str:
        """Connection string through the relay, without a chroot."""
        return ",".join(f"127.0.0.1:{self._network.ports[f'z{number}']}" for number in self.servers)

    def launch(self, number: int) -> None:
        """Returns once it listens, with or without the others."""
        server = self.servers[number]
        started = self._launchers.submit(server.start)
        wait_until(lambda: server.pid is not None or started.done(), f"ZooKeeper server {number} is there")
        if server.pid is not None:  # before it dials the others
            self._network.name(server.pid, f"z{number}")
        started.result()

    def start(self) -> None:
        with ThreadPoolExecutor(len(self.servers)) as each:
            list(each.map(self.launch, self.servers))
        self.wait_ready()

    def wait_ready(self) -> None:
        """Every server is in the quorum. Raises AssertionError."""
        wait_until(
            lambda: all(server.serving() for server in self.servers.values()),
            "an ensemble of ZooKeeper servers",
            bound_s=300,
        )

    def close(self) -> None:
        for server in self.servers.values():
            server.kill()
        self._launchers.shutdown()
