"""Everything that a run can break: three brokers, three ZooKeeper servers, and the network between them.

Owns which processes should run: one that ends by itself is noted and started again, as a service would be.
A process belongs to one fault at a time (`claim`). Must not choose faults, nor know what clients do.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos.claims import Claims
from tests.chaos.disks import SmallDisk
from tests.chaos.ensemble import Ensemble
from tests.chaos.network import Network
from tests.support.broker import BrokerProcess
from tests.support.clock_shim import ClockShim
from tests.support.waiting import wait_until
from topology.runtime import free_port

NUMBERS = (1, 2, 3)
SETTINGS: Mapping[str, str] = {
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "100",
    "replica.socket.timeout.ms": "5000",
    "zookeeper.session.timeout.ms": "3000",
    "zookeeper.connection.timeout.ms": "60000",
}
SESSION_S = 3.0
_LOOK_S = 0.25


class RelayedBroker(BrokerProcess):
    """A broker that says the relay's address to everybody; its own port is kept."""

    clock: ClockShim | None = None

    def wait_ready(self, timeout_s: float = 120.0) -> None:
        port = self.port
        super().wait_ready(timeout_s)
        self.port = port  # the ready line names what is advertised

    def launch(self) -> None:
        """The output of earlier lives is kept beside."""
        path = self.directory / "output"
        if path.exists():
            path.rename(self.directory / f"output.{time.monotonic_ns()}")
        with contextlib.nullcontext() if self.clock is None else self.clock.loaded():
            super().launch()


class World:
    """`start`, faults, `heal`, `close`. `ended` says which brokers ended by themselves, and how."""

    def __init__(
        self,
        directory: Path,
        *,
        program: Sequence[str] = ("isthmus",),
        settings: Mapping[str, str] | None = None,
        zookeepers: int = 3,
        breakable: bool = True,
        patience_s: float = 30.0,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Clocks and disk are `breakable` from the beginning or not at all. A step of a story waits as long
        as `patience_s` for the one before.
        """
        self.say = say
        self.patience_s = patience_s
        self.ended: list[str] = []
        self.network = Network()
        self.ensemble = Ensemble(directory, self.network, zookeepers)
        self.brokers = {
            number: RelayedBroker(
                directory / f"broker-{number}",
                f"{self.ensemble.connect}/chaos",
                number,
                rack=f"r{number}",
                settings={**SETTINGS, **(settings or {})},
                arguments=("--advertised-listener", f"PLAINTEXT://127.0.0.1:{self._listen(number)}"),
                program=program,
            )
            for number in NUMBERS
        }
        for number, broker in self.brokers.items():
            broker.port = free_port()
            self.network.point(f"b{number}", broker.port)
        self.small = NUMBERS[-1]
        self.disk = SmallDisk.mounted(self.brokers[self.small].directory / "data") if breakable else None
        self.clocks = self._own_clocks() if breakable else {}
        # The kernel ties a child's life to the thread that started it: this one lasts.
        self._launcher = ThreadPoolExecutor(1, "launcher")
        self._wanted: set[int] = set()
        self.claim = Claims(60.0).claim
        """For one fault alone: see `Claims`."""
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)

    def _own_clocks(self) -> Mapping[int, ClockShim]:
        if not (shutil.which("cc") or shutil.which("gcc")):
            return {}
        for broker in self.brokers.values():
            broker.directory.mkdir(parents=True, exist_ok=True)
            broker.clock = ClockShim(broker.directory)
        return {number: broker.clock for number, broker in self.brokers.items() if broker.clock is not None}

    def _listen(self, number: int) -> int:
        return self.network.listen(f"b{number}")

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.network.ports[f'b{number}']}" for number in NUMBERS)

    @property
    def logs(self) -> dict[int, Path]:
        """Each broker's log directory."""
        return {number: broker.directory / "data" / "log" for number, broker in self.brokers.items()}

    def start(self) -> None:
        self.ensemble.start()
        for number in NUMBERS:
            self.launch_broker(number)
        for broker in self.brokers.values():
            broker.wait_ready()
        self._keeper.start()

    # -- processes

    def launch_broker(self, number: int) -> None:
        """Without waiting; from now on it should run."""
        broker = self.brokers[number]
        self._launcher.submit(broker.launch).result()
        self.network.name(broker.pid, f"b{number}")
        self._wanted.add(number)

    def kill_broker(self, number: int) -> None:
        self._wanted.discard(number)
        self.brokers[number].kill()

    def stop_broker(self, number: int) -> None:
        """SIGTERM; where that takes too long, as among faults it may, SIGKILL."""
        self._wanted.discard(number)
        try:
            self.brokers[number].stop()
        except AssertionError:
            self.say(f"broker {number} did not stop in time and was killed")

    def launch_zookeeper(self, number: int) -> None:
        self.ensemble.launch(number)

    def _keep(self) -> None:
        while not self._closing.wait(_LOOK_S):
            for number in list(self._wanted):
                broker = self.brokers[number]
                if not broker.running and number in self._wanted:
                    last = broker.output.splitlines()[-1:]
                    self.ended.append(f"broker {number}: {''.join(last)}")
                    self.say(f"broker {number} ended by itself: {''.join(last)}")
                    self.launch_broker(number)

    # -- the end

    def heal(self) -> None:
        """Faults are over: everybody comes up. Raises AssertionError."""
        self.ensemble.wait_ready()
        wait_until(
            lambda: all(
                broker.running and f"broker {number} ready" in broker.output
                for number, broker in self.brokers.items()
            ),
            "every broker is ready",
            bound_s=300,
        )

    def close(self) -> None:
        self._closing.set()
        if self._keeper.ident is not None:
            self._keeper.join()
        self._wanted.clear()
        for broker in self.brokers.values():
            broker.kill()
        if self.disk is not None:
            self.disk.close()
        self.ensemble.close()
        self._launcher.shutdown()
        self.network.close()
