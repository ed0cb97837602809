"""Everything that a run of links can break: two clusters, the links' processes, and the network between them.

Owns which processes should run: one that ends by itself is noted and started again, as a service would be.
A process belongs to one fault at a time (`claim`). Must not choose faults, nor know what clients do.
ZooKeeper is nobody's victim here: `tests.chaos` breaks that.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.chaos.claims import Claims, LeftOut
from tests.chaos.links.apache import ApacheBroker
from tests.chaos.links.clients import committed_reader
from tests.chaos.links.schedule import BROKERS
from tests.chaos.network import Network
from tests.chaos.world import RelayedBroker
from tests.support.waiting import wait_until
from tests.support.zookeeper import fresh_chroot, start_zookeeper
from topology.runtime import free_port

ROOT = Path(__file__).parents[3]
SIDES = ("east", "west")
LINKS = ("east->west", "west->east")
SETTINGS: Mapping[str, str] = {
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "100",
    "zookeeper.session.timeout.ms": "3000",
    "zookeeper.connection.timeout.ms": "60000",
}
_LOOK_S = 0.25
_ANSWER_S = 60.0
_AGAIN_S = 1.0
"""A service waits a little before it starts again what has ended."""


def ends(link: str) -> tuple[str, str]:
    """Source and target."""
    source, _, target = link.partition("->")
    return source, target


class OurBroker(RelayedBroker):
    """One of ours."""

    @property
    def ready(self) -> bool:
        return self.running and f"broker {self.broker_id} ready" in self.output


class Worker:
    """One process of a link, started again on the same file."""

    def __init__(self, directory: Path, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.output = directory / f"{name.replace('>', '')}.log"
        self._command = [sys.executable, "-m", *command]
        self.process: subprocess.Popen[bytes] | None = None
        self._began_at = 0

    @property
    def ready(self) -> bool:
        """Whether it has said so since it was started last."""
        with self.output.open("rb") as output:
            output.seek(self._began_at)
            return self.running and b" ready" in output.read().replace(b"not ready", b"")

    def launch(self) -> None:
        self._began_at = self.output.stat().st_size if self.output.exists() else 0
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self._command,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, "ISTHMUS_PARENT": str(os.getpid())},
            )

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        if self.running:
            assert self.process is not None
            self.process.send_signal(number)

    def end(self, number: signal.Signals, bound_s: float = 60.0) -> int:
        """The exit code; one that does not end in time is killed."""
        assert self.process is not None
        self.send(number)
        try:
            return self.process.wait(bound_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def answered(future: Future[None]) -> None:
    """Raises KafkaException; LeftOut where the cluster is too busy, or too broken, to answer."""
    try:
        future.result(_ANSWER_S)
    except TimeoutError:
        raise LeftOut(f"no answer within {_ANSWER_S:g} s") from None


class LinkWorld:
    """`start`, faults, `heal`, `close`. `ended` counts what ended by itself, by its last words."""

    def __init__(
        self,
        directory: Path,
        *,
        program: Sequence[str] = ("isthmus",),
        workers: int = 1,
        link_settings: Mapping[str, object] | None = None,
        apache: str | None = None,
        broker_settings: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`program` runs the links: a module and what comes before `replicate` on its command line. The side
        `apache` is one broker of Apache Kafka. `broker_settings` hold for all brokers.
        """
        self.say = say
        self.directory = directory
        self.file = directory / "topology.yaml"
        self.ended: Counter[str] = Counter()
        self._broker_settings = dict(broker_settings or {})
        self.topic_settings: dict[str, Mapping[str, str]] = {}
        """By name, of topics that are made with any."""
        self.network = Network()
        self.zookeeper = start_zookeeper(directory / "zookeeper")
        self.brokers: dict[str, OurBroker | ApacheBroker] = {}
        for side in SIDES:
            if side == apache:
                self.brokers[f"{side}1"] = self._apache(f"{side}1")
                continue
            chroot = fresh_chroot(self.zookeeper)
            for number in range(1, BROKERS + 1):
                self.brokers[f"{side}{number}"] = self._broker(side, number, chroot)
        self.workers = {
            worker.name: worker
            for link in LINKS
            for number in range(1, workers + 1)
            for worker in [
                Worker(directory, f"{link}-{number}", (*program, "replicate", str(self.file), "--link", link))
            ]
        }
        self.topics: dict[str, dict[str, int]] = {side: {} for side in SIDES}
        """Partitions by name, of what is written to at each side; grows while it runs."""
        self._link_settings = dict(link_settings or {})
        self._admins: dict[str, AdminClient] = {}
        # The kernel ties a child's life to the thread that started it: this one lasts.
        self._launcher = ThreadPoolExecutor(1, "launcher")
        self._wanted: dict[str, float] = {}
        self.claim = Claims(90.0).claim
        """For one fault alone: see `Claims`."""
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)

    def _apache(self, name: str) -> ApacheBroker:
        broker = ApacheBroker(self.directory / name, self.network.listen(name), self._broker_settings)
        self.network.point(name, broker.port)
        return broker

    def _broker(self, side: str, number: int, chroot: str) -> OurBroker:
        name = f"{side}{number}"
        broker = OurBroker(
            self.directory / name,
            chroot,
            number,
            settings={**SETTINGS, **self._broker_settings},
            arguments=("--advertised-listener", f"PLAINTEXT://127.0.0.1:{self.network.listen(name)}"),
        )
        broker.port = free_port()
        self.network.point(name, broker.port)
        return broker

    # -- who is who

    def brokers_of(self, side: str) -> list[str]:
        return [name for name in self.brokers if name.startswith(side)]

    def workers_of(self, link: str) -> list[str]:
        return [name for name in self.workers if name.startswith(link)]

    def bootstrap(self, side: str) -> str:
        return ",".join(f"127.0.0.1:{self.network.ports[name]}" for name in self.brokers_of(side))

    # -- the beginning

    def start(self, topics: Mapping[str, int], sides: Sequence[str] = SIDES) -> None:
        """Brokers, `topics` (with their partitions) on these sides, then links."""
        for name in self.brokers:
            self.launch(name)
        for broker in self.brokers.values():
            broker.wait_ready()
        for side in sides:
            self.create_topics(side, topics)
        self._write_file()
        for name in self.workers:
            self.launch(name)
        self._keeper.start()

    def create_topics(self, side: str, topics: Mapping[str, int]) -> None:
        made = self.admin(side).create_topics(
            [
                NewTopic(
                    name, count, len(self.brokers_of(side)), config=dict(self.topic_settings.get(name, {}))
                )
                for name, count in topics.items()
            ]
        )
        for name, future in made.items():
            answered(future)
            self.topics[side] = {**self.topics[side], name: topics[name]}

    def grow_topic(self, side: str, topic: str, partitions: int) -> None:
        answered(self.admin(side).create_partitions([NewPartitions(topic, partitions)])[topic])
        self.topics[side] = {**self.topics[side], topic: partitions}

    def partitions(self, side: str) -> dict[str, int]:
        """By topic, of all that there are."""
        topics = self.admin(side).list_topics(timeout=30).topics
        return {name: len(found.partitions) for name, found in topics.items()}

    def watermarks(self, side: str, tp: TopicPartition) -> tuple[int, int]:
        """Where a log begins and ends for readers. Raises KafkaException."""
        consumer = committed_reader(self.bootstrap(side), "unused")
        try:
            low, high = consumer.get_watermark_offsets(tp, timeout=20)
        finally:
            consumer.close()
        return low, high

    def admin(self, side: str) -> AdminClient:
        """One for each side: one that ends right behind its answer may abort in librdkafka."""
        if side not in self._admins:
            self._admins[side] = AdminClient({"bootstrap.servers": self.bootstrap(side), "log_level": 0})
        return self._admins[side]

    def wait(self, seconds: float) -> None:
        """A fault lasts; the end of the run ends it."""
        self._closing.wait(seconds)

    def _write_file(self) -> None:
        link = {"topics": ["load-.*"], "groups": ["group-.*"], **self._link_settings}
        text = {
            "version": 1,
            "name": "chaos",
            "data_directory": str(self.directory / "topology"),
            "datacenters": {side: {} for side in SIDES},
            "clusters": {
                side: {"datacenter": side, "bootstrap_servers": self.bootstrap(side)} for side in SIDES
            },
            "links": dict.fromkeys(LINKS, link),
        }
        self.file.write_text(json.dumps(text))  # JSON is YAML, without anchors

    # -- processes

    def launch(self, name: str) -> None:
        """Without waiting; from now on it should run."""
        found = self.brokers.get(name) or self.workers[name]
        self._launcher.submit(found.launch).result()
        self.network.name(self.pid(name), name)
        self._wanted[name] = time.monotonic()

    def pid(self, name: str) -> int:
        if name in self.brokers:
            return self.brokers[name].pid
        process = self.workers[name].process
        assert process is not None
        return process.pid

    def kill(self, name: str) -> None:
        """SIGKILL; it stays away until `launch`."""
        self._wanted.pop(name, None)
        if name in self.brokers:
            self.brokers[name].kill()
        else:
            self.workers[name].end(signal.SIGKILL)

    def stop(self, name: str) -> None:
        """SIGTERM; where that takes too long, as among faults it may, SIGKILL."""
        self._wanted.pop(name, None)
        try:
            if name in self.brokers:
                self.brokers[name].stop()
            else:
                self.workers[name].end(signal.SIGTERM)
        except (AssertionError, subprocess.TimeoutExpired):
            self.say(f"{name} did not stop in time and was killed")

    def _running(self, name: str) -> bool:
        return (self.brokers.get(name) or self.workers[name]).running

    def _keep(self) -> None:
        while not self._closing.wait(_LOOK_S):
            for name, since in list(self._wanted.items()):
                if self._running(name) or time.monotonic() < since + _AGAIN_S or name not in self._wanted:
                    continue
                words = self._last_words(name)
                self.ended[f"{name}: {words}"] += 1
                self.say(f"{name} ended by itself: {words}")
                self.launch(name)

    def _last_words(self, name: str) -> str:
        if name in self.brokers:
            text = self.brokers[name].output
        else:
            text = self.workers[name].output.read_text(errors="replace")
        last = text.splitlines()[-1:]
        return "".join(last)[-160:]

    # -- the end

    def heal(self, side: str = "") -> None:
        """Every broker (of one side) comes up, faults being over there. Raises AssertionError."""
        wait_until(
            lambda: all(broker.ready for name, broker in self.brokers.items() if name.startswith(side)),
            "every broker is ready",
            bound_s=300,
        )

    def end_links(self) -> dict[str, int]:
        """SIGTERM to every link; exit codes by process."""
        codes = {}
        for name, worker in self.workers.items():
            self._wanted.pop(name, None)
            codes[name] = worker.end(signal.SIGTERM)
        return codes

    def close(self) -> None:
        self._closing.set()
        if self._keeper.ident is not None:
            self._keeper.join()
        self._wanted.clear()
        for worker in self.workers.values():
            if worker.process is not None:
                worker.end(signal.SIGKILL)
        for broker in self.brokers.values():
            broker.kill()
        self.zookeeper.stop()
        self._launcher.shutdown()
        self.network.close()
