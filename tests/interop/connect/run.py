"""A Kafka Connect cluster on our broker: file source and sink, two workers, one killed and started again.

The judge is the file that the sink wrote and the topic between, read from outside. All that Connect keeps
lies in its three internal topics, so a worker that comes back knows only what the broker kept.
"""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.interop.java import jars
from tests.interop.java.jvm import Jvm
from tests.interop.java.topic_reading import create, partitions_of, read, setting
from tests.interop.java.waiting import until
from tests.interop.suite import Options, Result, main
from topology.runtime import free_port

_FILE = "org.apache.kafka.connect.file.FileStream"
_TESTS = ("one_worker", "distributed", "exactly_once_source")
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}


class Workers:
    """A Connect cluster with a group and internal topics of its own."""

    def __init__(self, name: str, bootstrap: str, folder: Path, **settings: str) -> None:
        self.bootstrap, self.folder, self.name = bootstrap, folder, name
        self._jars = [f"{jars.tools()}/*", f"{jars.streams_and_file_connectors()}/*"]
        self._settings = settings
        self.running: dict[int, Jvm] = {}

    def start(self) -> int:
        """One more worker, known by its REST port."""
        port = free_port()
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.name,
            "listeners": f"http://127.0.0.1:{port}",
            "rest.advertised.host.name": "127.0.0.1",
            "plugin.discovery": "service_load",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            **{
                f"{kind}.storage.{what}": text
                for kind in ("config", "offset", "status")
                for what, text in (("topic", f"{self.name}-{kind}"), ("replication.factor", "1"))
            },
            "offset.storage.partitions": "5",
            "status.storage.partitions": "2",
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "4000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "1000",
            **self._settings,
        }
        file = self.folder / f"{self.name}-{port}.properties"
        file.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
        command = ("org.apache.kafka.connect.cli.ConnectDistributed", str(file))
        self.running[port] = Jvm(self._jars, *command, folder=self.folder)
        return port

    def kill(self, port: int) -> None:
        self.running.pop(port).kill()

    def close(self) -> None:
        for worker in self.running.values():
            worker.kill()

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """An answer of any worker that answers; None when none does."""
        for port in self.running:
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}{path}",
                method=method,
                data=json.dumps(body).encode() if body is not None else None,
                headers={"Content-Type": "application/json"},
            )
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    return json.loads(answer.read() or b"{}")
            except (urllib.error.URLError, OSError):
                continue
        return None

    def ready(self, port: int) -> None:
        def answers() -> bool:
            assert self.running[port].running, f"a worker ended: …{self.running[port].output[-3000:]}"
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/connectors", timeout=5):
                    return True
            except (urllib.error.URLError, OSError):
                return False

        until("a worker answers", answers)

    def deploy(self, connector: str, settings: Mapping[str, str]) -> None:
        until(f"{connector} is taken", lambda: self.ask("PUT", f"/connectors/{connector}/config", settings))
        self.await_task(connector)

    def await_task(self, connector: str) -> str:
        """The worker that runs the connector's task, once it runs on a worker that lives."""

        def runs() -> str:
            status = self.ask("GET", f"/connectors/{connector}/status") or {"tasks": []}
            alive = {f"127.0.0.1:{port}" for port in self.running}
            found = [task for task in status["tasks"] if task["worker_id"] in alive]
            failed = [task for task in found if task["state"] == "FAILED"]
            assert not failed, failed[0].get("trace", "")[:2000]
            return next((task["worker_id"] for task in found if task["state"] == "RUNNING"), "")

        return until(f"the task of {connector} runs", runs)


def lines(start: int, count: int) -> str:
    return "".join(f"line {number:06}\n" for number in range(start, start + count))


def one_worker(bootstrap: str, folder: Path) -> str:
    """The short cut: lines go through a topic, and what Connect keeps lies in its topics."""
    source, sink = folder / "one-in.txt", folder / "one-out.txt"
    source.write_text(lines(0, 500))
    create(bootstrap, "one-lines", 1)
    workers = Workers("one", bootstrap, folder)
    try:
        workers.ready(workers.start())
        _deploy_files(workers, source, "one-lines", sink)
        _has_all(sink, 500)
        _append(source, lines(500, 100))
        _has_all(sink, 600)
        _keeps_its_topics(bootstrap, "one")
    finally:
        workers.close()
    assert sink.read_text() == lines(0, 600), "in order, each once: no worker died"
    return "600 lines"


def _deploy_files(workers: Workers, source: Path, topic: str, sink: Path) -> None:
    of_source = {"connector.class": f"{_FILE}SourceConnector", "file": str(source), "topic": topic}
    of_sink = {"connector.class": f"{_FILE}SinkConnector", "file": str(sink), "topics": topic}
    workers.deploy("source", {**of_source, "tasks.max": "1"})
    workers.deploy("sink", {**of_sink, "tasks.max": "1"})


def _keeps_its_topics(bootstrap: str, name: str) -> None:
    for kind, partitions in (("config", 1), ("offset", 5), ("status", 2)):
        topic = f"{name}-{kind}"
        assert len(partitions_of(bootstrap, topic)) == partitions, topic
        assert setting(bootstrap, topic, "cleanup.policy") == "compact", topic


def distributed(bootstrap: str, folder: Path) -> str:
    """At least once: every line arrives, also those written while a worker dies."""
    source, sink = folder / "in.txt", folder / "out.txt"
    source.write_text(lines(0, 500))
    create(bootstrap, "lines", 1)
    workers = Workers("connect", bootstrap, folder)
    try:
        ports = [workers.start(), workers.start()]
        for port in ports:
            workers.ready(port)
        _deploy_files(workers, source, "lines", sink)
        _has_all(sink, 500)
        victim = int(workers.await_task("source").rpartition(":")[2])
        workers.kill(victim)
        _append(source, lines(500, 500))
        workers.await_task("source")
        workers.await_task("sink")
        _has_all(sink, 1000)
        for port in list(workers.running):  # the whole cluster goes; a new one knows what the topics kept
            workers.kill(port)
        _append(source, lines(1000, 500))
        workers.ready(workers.start())
        _has_all(sink, 1500)
        _keeps_its_topics(bootstrap, "connect")
    finally:
        workers.close()
    twice = len(sink.read_text().splitlines()) - 1500
    return f"1500 lines, none lost, {twice} twice"


def exactly_once_source(bootstrap: str, folder: Path) -> str:
    """Source records and offsets in one transaction: no line twice, whenever the worker dies."""
    source = folder / "once.txt"
    source.write_text(lines(0, 3000))
    create(bootstrap, "once", 1)
    workers = Workers("once", bootstrap, folder, **{"exactly.once.source.support": "enabled"})
    settings = {
        "connector.class": f"{_FILE}SourceConnector",
        "file": str(source),
        "topic": "once-lines",
        "tasks.max": "1",
        "batch.size": "50",
    }
    create(bootstrap, "once-lines", 1)
    try:
        workers.ready(workers.start())
        workers.deploy("once", settings)
        for start in (3000, 4000):
            workers.kill(next(iter(workers.running)))
            _append(source, lines(start, 1000))
            workers.ready(workers.start())
            workers.await_task("once")
        wanted = lines(0, 5000).splitlines()
        found: list[str] = []

        def all_there() -> bool:
            found[:] = [value for _, value in read(bootstrap, "once-lines")]
            return len(found) >= len(wanted)

        until("every line is in the topic", all_there)
        assert found == wanted, f"{len(found)} lines, {len(set(found))} different"
    finally:
        workers.close()
    return "5000 lines once, two workers killed"


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def _has_all(sink: Path, count: int) -> None:
    wanted = set(lines(0, count).splitlines())
    until(f"{count} lines arrive", lambda: sink.exists() and wanted <= set(sink.read_text().splitlines()))


def tests(options: Options) -> Iterator[Result]:
    chosen = options.chosen(_TESTS)
    jars.tools()
    jars.streams_and_file_connectors()
    if not chosen:
        return
    with options.broker(SETTINGS) as bootstrap:
        for test in (one_worker, distributed, exactly_once_source):
            if test.__name__ not in chosen:
                continue
            started = time.monotonic()
            try:
                note, status = test(bootstrap, options.scratch), "passed"
            except AssertionError as wrong:
                print(str(wrong), file=sys.stderr, flush=True)
                note, status = str(wrong).strip().replace("\n", " ")[:300], "failed"
            yield Result(test.__name__, status, time.monotonic() - started, note)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent, tests, "4.3.1"))
