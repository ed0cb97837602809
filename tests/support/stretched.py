"""A whole topology for tests, run by `isthmus up`, whose sites are cut, killed and brought back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from ruamel.yaml import YAML

from tests.support.commands import isthmus
from tests.support.waiting import wait_until
from topology.control import request
from topology.load import load_topology
from topology.models import Topology
from topology.network.control import ask
from topology.routes import network_socket
from topology.runtime import Runtime

ROOT = Path(__file__).parents[2]
_READY_S = 120.0


class RunningTopology:
    """`isthmus up` on a document; `directory` gets the file and the data."""

    def __init__(self, document: Mapping[str, Any], directory: Path) -> None:
        self.file = directory / "topology.yaml"
        self.log = directory / "up.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._admins: dict[str | None, AdminClient] = {}
        directory.mkdir(parents=True, exist_ok=True)
        YAML(typ="safe").dump({**document, "data_directory": str(directory / "data")}, self.file)

    @property
    def topology(self) -> Topology:
        return load_topology(self.file)

    @property
    def runtime(self) -> Runtime:
        return Runtime.load(self.topology.data_directory)

    def __enter__(self) -> Self:
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "isthmus", "up", str(self.file)],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, "ISTHMUS_PARENT": str(os.getpid()), "PYTHONUNBUFFERED": "1"},
            )
        deadline = time.monotonic() + _READY_S
        while "isthmus topology" not in self.output():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise AssertionError(f"isthmus up is not ready:\n{self.output()}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its processes die with it
            self._process.wait()

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def control(self, verb: str, *parts: str) -> Any:
        """`status`, or `start`, `stop` or `kill` of parts."""
        return asyncio.run(request(self.runtime, verb, list(parts)))

    def net(self, do: str = "show", **request: Any) -> dict[tuple[str, str], dict[str, Any]]:
        """The links asked for, by direction, after the change."""
        links = asyncio.run(ask(network_socket(self.runtime), {"do": do, **request}))
        return {(link["from"], link["to"]): link for link in links}

    def cut(self, site: str) -> None:
        self.net("set", **{"from": site, "to": None, "both": True, "changes": {"up": False}})

    def heal(self) -> None:
        self.net("reset")

    def status(self, *options: str) -> tuple[subprocess.CompletedProcess[str], float]:
        """`isthmus status` as a person sees it, whatever its exit code, and the seconds that it took."""
        began = time.monotonic()
        done = isthmus("status", self.file, *options, timeout_s=120)
        return done, time.monotonic() - began

    def command(self, *words: str, code: int = 0) -> str:
        """Standard output of an `isthmus` command; asserts its exit code."""
        done = isthmus(*words, timeout_s=120)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def bootstrap(self, site: str | None = None, cluster: str = "main") -> str:
        return self.runtime.bootstrap_servers(self.topology, cluster, site)

    def admin(self, site: str | None = None) -> AdminClient:
        """One for each site, kept: an admin client must outlive its answers."""
        if site not in self._admins:
            settings = {"bootstrap.servers": self.bootstrap(site), "socket.timeout.ms": 5000, "log_level": 0}
            self._admins[site] = AdminClient(settings)
        return self._admins[site]

    def partitions(self, topic: str, site: str | None = None) -> dict[int, tuple[int, list[int]]]:
        """Leader and sorted ISR by partition, as the brokers that the site reaches tell."""
        found = self.admin(site).list_topics(topic, timeout=30).topics[topic].partitions
        return {number: (each.leader, sorted(each.isrs)) for number, each in sorted(found.items())}

    def wait_isr(self, topic: str, members: list[int], *, site: str | None = None) -> None:
        def there() -> bool:
            try:
                found = self.partitions(topic, site)
            except KafkaException:  # asked a broker that is cut off
                return False
            return all(isr == members for _, isr in found.values())

        wait_until(there, f"ISR {members} in every partition of {topic}", bound_s=90.0)

    def same_replicas(self, topic: str, cluster: str = "main") -> bool:
        """Whether all brokers of the cluster have the same bytes of each partition on their disks."""
        topology = self.topology
        directories = [
            topology.data_directory / f"{cluster}-broker-{broker.id}" / "log"
            for broker in topology.clusters[cluster].brokers
        ]
        partitions = len(self.admin().list_topics(topic, timeout=30).topics[topic].partitions)
        return all(
            len({_log_bytes(path / f"{topic}-{index}") for path in directories}) == 1
            for index in range(partitions)
        )


def _log_bytes(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def document_of(file: Path) -> dict[str, Any]:
    """A topology file as plain data, to be changed."""
    content: dict[str, Any] = YAML(typ="safe").load(file)
    return content
