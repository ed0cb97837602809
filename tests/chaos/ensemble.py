"""Real ZooKeeper servers of one ensemble; their clients and each other they reach through the network.

Owns their processes and configuration. A server tells the others in elections at which address it listens,
which would lead past the relay: so none says one, and each dials what it was configured with.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from broker.control.embedded_zookeeper import LOG4J, four_letter_word
from broker.control.java import find_java, zookeeper_classpath
from broker.control.zookeeper_ensemble import WILDCARD
from tests.chaos.network import Network, free_port
from tests.support.waiting import wait_until

TICK_MS = 500
_PR_SET_PDEATHSIG = 1


class ZooKeeperServer:
    def __init__(self, directory: Path, number: int) -> None:
        self.number = number
        self.directory = directory
        self.client_port, self.quorum_port, self.election_port = free_port(), free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def write_config(self, others: Mapping[int, str]) -> None:
        """`others`: for every server of the ensemble host:quorum port:election port as this one dials it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "myid").write_text(str(self.number))
        (self.directory / "log4j2.properties").write_text(LOG4J)
        settings: dict[str, object] = {
            "dataDir": self.directory,
            "clientPort": self.client_port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": TICK_MS,
            "initLimit": 30,
            "syncLimit": 8,
            "minSessionTimeout": 2 * TICK_MS,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **{f"server.{number}": address for number, address in others.items()},
        }
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.directory / "zoo.cfg").write_text(lines)

    def launch(self) -> None:
        """From a thread that outlives the server: the kernel ties its life to that one."""
        command = [
            *(find_java(), "-Xmx96m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-Djava.awt.headless=true", "-Dzookeeper.jmx.log4j.disable=true", "-Djute.maxbuffer=4194304"),
            "-Dzookeeper.forceSync=no",  # processes are killed here, machines do not lose power
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            *("-cp", zookeeper_classpath(), "org.apache.zookeeper.server.quorum.QuorumPeerMain"),
            str(self.directory / "zoo.cfg"),
        ]
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        with (self.directory / "output").open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0),
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def mode(self) -> str:
        """`leader`, `follower`, or nothing while it has no quorum."""
        for line in four_letter_word("127.0.0.1", self.client_port, "srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return ""

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


class Ensemble:
    """Of `size` servers. `launch` also says to the network who is who."""

    def __init__(self, directory: Path, network: Network, size: int = 3) -> None:
        self._network = network
        numbers = range(1, size + 1)
        self.servers = {each: ZooKeeperServer(directory / f"zookeeper-{each}", each) for each in numbers}
        for number, server in self.servers.items():
            ports = {"z": server.client_port, "q": server.quorum_port, "e": server.election_port}
            for letter, port in ports.items():
                network.listen(f"{letter}{number}")
                network.point(f"{letter}{number}", port)
        for server in self.servers.values():
            server.write_config({each: self._address(each, server) for each in numbers})

    def _address(self, number: int, seen_by: ZooKeeperServer) -> str:
        if number == seen_by.number:
            return f"{WILDCARD}:{seen_by.quorum_port}:{seen_by.election_port}"
        ports = self._network.ports
        return f"127.0.0.1:{ports[f'q{number}']}:{ports[f'e{number}']}"

    @property
    def connect(self) -> str:
        """Connection string through the relay, without a chroot."""
        return ",".join(f"127.0.0.1:{self._network.ports[f'z{number}']}" for number in self.servers)

    def launch(self, number: int) -> None:
        self.servers[number].launch()
        self._network.name(self.servers[number].pid, f"z{number}")

    def start(self) -> None:
        for number in self.servers:
            self.launch(number)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Every server is in the quorum. Raises AssertionError."""
        wait_until(
            lambda: all(server.mode for server in self.servers.values()),
            "an ensemble of ZooKeeper servers",
            bound_s=300,
        )

    def close(self) -> None:
        for server in self.servers.values():
            server.kill()
