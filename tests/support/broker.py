"""Real broker processes for tests: start, kill, stop, start again on the same data and port.

A broker is the `isthmus broker` command in a process of its own; its output is kept in its directory and
shown when it does not come up.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

READY = re.compile(r"isthmus broker (?P<id>\d+) ready: (?P<listeners>\S+) cluster (?P<cluster>\S+)")
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0

# What tests want of a small cluster: quick groups, quick detection of a killed broker, few partitions.
TEST_SETTINGS: Mapping[str, str] = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "2000",
}


class BrokerProcess:
    """One broker. `port` is kept over restarts, so that clients find it again."""

    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        broker_id: int,
        *,
        rack: str | None = None,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        program: Sequence[str] = ("isthmus",),
    ) -> None:
        """`program` is the module to run, and what comes before `broker` on its command line."""
        self.directory = directory
        self.broker_id = broker_id
        self.zookeeper = zookeeper
        self.port = 0
        self.cluster_id = ""
        self._rack = rack
        self._settings = {**TEST_SETTINGS, **(settings or {})}
        self._arguments = tuple(arguments)
        self._program = tuple(program)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def output(self) -> str:
        """Everything that the process has written."""
        path = self.directory / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def command(self) -> list[str]:
        settings = [part for name, text in self._settings.items() for part in ("--set", f"{name}={text}")]
        return [
            *(sys.executable, "-m", *self._program, "broker"),
            *("--id", str(self.broker_id)),
            *("--zookeeper", self.zookeeper),
            *("--listener", f"PLAINTEXT://127.0.0.1:{self.port}"),
            *("--data", str(self.directory / "data")),
            *("--log-level", "info"),
            *(("--rack", self._rack) if self._rack else ()),
            *settings,
            *self._arguments,
        ]

    def launch(self) -> None:
        """Start without waiting."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "output").open("wb") as output:
            self._process = subprocess.Popen(
                self.command(),
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "ISTHMUS_PARENT": str(os.getpid())},
            )

    def wait_ready(self, timeout_s: float = _START_TIMEOUT_S) -> None:
        """Until the ready line; the bound port is known then. Raises AssertionError with the output."""
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            match = READY.search(self.output)
            if match is not None:
                self.port = int(match["listeners"].rpartition(":")[2])
                self.cluster_id = match["cluster"]
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        code = self._process.poll()
        self.kill()
        raise AssertionError(f"broker {self.broker_id} is not ready (exit code {code}):\n{self.output}")

    def start(self) -> "BrokerProcess":
        self.launch()
        self.wait_ready()
        return self

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"broker {self.broker_id} does not stop:\n{self.output}") from None

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wait(self, timeout_s: float) -> int:
        """Until the process ends by itself; returns the exit code."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None


class Cluster:
    """Brokers that share a ZooKeeper chroot."""

    def __init__(self, directory: Path, zookeeper: str, *, program: Sequence[str] = ("isthmus",)) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self._program = program
        self.brokers: dict[int, BrokerProcess] = {}

    def add(
        self,
        broker_id: int,
        *,
        rack: str | None = None,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> BrokerProcess:
        """A broker that is not started yet."""
        directory = self.directory / f"broker-{broker_id}"
        broker = BrokerProcess(
            directory,
            self.zookeeper,
            broker_id,
            rack=rack,
            settings=settings,
            arguments=arguments,
            program=self._program,
        )
        self.brokers[broker_id] = broker
        return broker

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values() if broker.running)

    def start(self) -> "Cluster":
        """Start all at once."""
        for broker in self.brokers.values():
            broker.launch()
        for broker in self.brokers.values():
            broker.wait_ready()
        return self

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
