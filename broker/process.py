"""One broker as a process: builds the parts, starts them in order, says when it serves, ends them in order.

Start: ZooKeeper (embedded, if asked for) → session and identity → logs → listeners → registration →
controller election → ready. Stop is the reverse, but leadership goes before the listeners (controlled
shutdown). Exit codes: 0 stopped as asked, 1 failed, 2 usage (wrong
settings). Every foreseen failure is one line on standard error.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import uvloop
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

from broker import garbage, time_slice
from broker.clock import SystemClock
from broker.config import BrokerConfig, ConfigError, Endpoint
from broker.config.listeners import advertised_host
from broker.control.embedded_zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError
from broker.control.identity import ForeignTree
from broker.control.java import JavaError
from broker.control.last_replica import PreviousEnd
from broker.control.plane import ControlPlane, NoController
from broker.control.previous_end import previous_end, remember_boot
from broker.control.registration import AlreadyRegistered
from broker.control.session_file import SessionFile
from broker.control.zookeeper_types import ZooKeeperError
from broker.control_metrics import ControlMetrics
from broker.log import LogDirError, LogManager
from broker.log.checkpoints import META_PROPERTIES, CheckpointDamaged, read_meta_properties
from broker.loop_delay import LoopWatch
from broker.metrics_endpoint import MetricsEndpoint
from broker.security.listeners import inter_broker_client
from broker.server.app import Broker, assemble

STOPPED = 0
FAILED = 1
USAGE = 2

STAND_ALONE: Mapping[str, str] = {
    "broker.id": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "zookeeper.session.timeout.ms": "6000",
}
"""Other defaults for a broker with its own ZooKeeper: alone, it can not keep Kafka's three replicas."""

_log = logging.getLogger("isthmus.broker")
_HAND_OVER_S = 20.0
_QUIET_S = 0.1
_LINGER_S = 0.5
_WATCH_CHILD_S = 0.5
_DESCRIPTORS = 1 << 20


class StartError(Exception):
    """The broker cannot serve; the message is for the operator."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is not a setting of Kafka's. `metrics_port` None = no endpoint, 0 = a free port."""

    embedded_zookeeper: Path | None = None
    zookeeper_port: int = 0
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None


def run(config: BrokerConfig, options: Options, say: Callable[[str], None] = print) -> int:
    """Run a broker until SIGTERM or SIGINT; returns the exit code. `say` gets the ready line.

    Call it in the main thread.
    """
    embedded: EmbeddedZooKeeper | None = None
    _raise_descriptor_limit()
    try:
        if options.embedded_zookeeper is not None:
            embedded = EmbeddedZooKeeper(options.embedded_zookeeper, port=options.zookeeper_port).start()
            config = dataclasses.replace(config, zookeeper_connect=embedded.connect)
        time_slice.shorten()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_Process(config, options, embedded, say).run())
    except ConfigError as error:
        return _complain("\n".join(f"isthmus: {line}" for line in error.errors), USAGE)
    except KeyboardInterrupt:
        return STOPPED
    except _FORESEEN as error:
        return _complain(f"isthmus: {error}", FAILED)
    finally:
        if embedded is not None:
            embedded.stop()
    return STOPPED


_FORESEEN = (
    StartError,
    AlreadyRegistered,
    EmbeddedZooKeeperError,
    ForeignTree,
    JavaError,
    LogDirError,
    NoController,
    ZooKeeperError,
)


def _raise_descriptor_limit() -> None:
    """As many descriptors as this user may have, as a JVM takes them: shells often give only 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _complain(text: str, code: int) -> int:
    print(text, file=sys.stderr)  # noqa: T201 - what a command is for
    return code


class _Process:
    """The running broker. Parts that are there are closed in reverse order, whatever happened."""

    def __init__(
        self,
        config: BrokerConfig,
        options: Options,
        embedded: EmbeddedZooKeeper | None,
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._options = options
        self._embedded = embedded
        self._say = say
        self._clock = SystemClock()
        self._plane: ControlPlane | None = None
        self._broker: Broker | None = None
        self._metrics: MetricsEndpoint | None = None
        self._watch: LoopWatch | None = None
        self._logs: LogManager | None = None

    async def run(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        waiting = asyncio.create_task(stop.wait(), name="signal")
        serving = asyncio.create_task(self._serve(), name="broker")
        try:
            await asyncio.wait((waiting, serving), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving  # raises why it ended
        finally:
            for task in (waiting, serving):
                task.cancel()
            await asyncio.gather(waiting, serving, return_exceptions=True)
            await self._close()

    async def _serve(self) -> None:
        """Start everything, and then watch what can end by itself."""
        await self._start()
        assert self._plane is not None
        while True:
            done, _ = await asyncio.wait((self._plane.failed,), timeout=_WATCH_CHILD_S)
            if done:
                raise self._plane.failed.result()
            if self._logs is not None and not self._logs.log_dirs:
                raise StartError(
                    "every log directory has failed: "
                    + "; ".join(f"{path} ({reason})" for path, reason in self._logs.offline_dirs.items())
                )
            if self._embedded is not None and not self._embedded.running():
                raise StartError(
                    f"the embedded ZooKeeper ended by itself, its log: {self._embedded.log_file}"
                )

    async def _start(self) -> None:
        config = self._config
        if config.zookeeper_connect is None:
            raise ConfigError(
                ["zookeeper.connect: not set; give --zookeeper HOST:PORT, or --embedded-zookeeper"]
            )
        directories = config.data_directories
        self._plane = plane = await ControlPlane.open(
            config,
            self._clock,
            known_broker_id=_earlier_broker_id(directories),
            security=inter_broker_client(config),
        )
        config = plane.config
        logs = LogManager(
            directories,
            config.broker_id,
            plane.metadata.cluster_id,
            self._clock,
            producer_expiration_ms=plane.configs.in_force.producer_id_expiration_ms,
        )
        try:
            plane.previous_end = previous_end(logs.log_dirs, clean=logs.was_clean)
            runs = plane.run_record(logs.log_dirs)
            if await runs.outdated(clean=logs.was_clean):
                plane.previous_end = PreviousEnd.LOST
            logs.run_in_owner = asyncio.get_running_loop().call_soon_threadsafe
            await plane.replace_session(SessionFile(logs.log_dirs[0]))
            await plane.load_settings(_topics_in(logs.log_dirs))
            await asyncio.to_thread(logs.load, plane.topics.topic_config)
        except BaseException:
            logs.close()
            raise
        self._broker = broker = assemble(
            broker_id=config.broker_id,
            config=config,
            clock=self._clock,
            logs=logs,
            metadata=plane.metadata,
            topics=plane.topics,
            claim_producer_ids=plane.claim_producer_ids,
            features=plane.features,
            controller=plane.controller,
        )
        self._logs = logs
        plane.keep_lease(broker.replicas.lease)
        logs.on_failure(plane.log_dir_events.failed)
        await broker.credentials.start()
        broker.metrics.gauge(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log directories that failed",
            (),
            lambda: [((), len(logs.offline_dirs))],
        )
        self._watch = LoopWatch(broker.metrics)
        self._watch.start()
        endpoints = _advertised(config, await self._listen(broker))
        await self._open_metrics(broker, plane)
        await plane.join(endpoints)
        await runs.begin()
        remember_boot(logs.log_dirs)  # not before a controller knows how the run before ended
        garbage.settle()
        self._say(self._ready_line(plane, endpoints))

    async def _listen(self, broker: Broker) -> dict[str, int]:
        try:
            return await broker.listen()
        except OSError as error:
            where = ", ".join(str(endpoint) for endpoint in broker.config.endpoints)
            raise StartError(f"cannot listen on {where}: {_reason(error)}") from error

    async def _open_metrics(self, broker: Broker, plane: ControlPlane) -> None:
        if self._options.metrics_port is None:
            return
        registry = CollectorRegistry()
        registry.register(broker.metrics)
        registry.register(ControlMetrics(plane))
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        endpoint = MetricsEndpoint(registry)
        host, port = self._options.metrics_host, self._options.metrics_port
        try:
            await endpoint.open(host, port)
        except OSError as error:
            raise StartError(f"cannot serve metrics on {host}:{port}: {_reason(error)}") from error
        self._metrics = endpoint

    def _ready_line(self, plane: ControlPlane, endpoints: tuple[Endpoint, ...]) -> str:
        parts = [
            f"isthmus broker {plane.config.broker_id} ready:",
            ",".join(str(endpoint) for endpoint in endpoints),
            f"cluster {plane.metadata.cluster_id}",
            f"data {','.join(plane.config.data_directories)}",
        ]
        if self._embedded is not None:
            parts.append(f"zookeeper {self._embedded.connect}")
        if self._metrics is not None:
            parts.append(f"metrics {self._metrics.url}")
        return " ".join(parts)

    async def _close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        if self._metrics is not None:
            await self._metrics.close()
        if self._plane is not None:
            epoch = self._plane.metadata.broker_epoch
            if self._broker is not None and self._config.controlled_shutdown_enable:
                await self._leave_to_others(self._broker, self._plane)
            self._plane.lead_no_more()
            if self._broker is not None:
                await self._broker.stop_serving()
                with contextlib.suppress(ZooKeeperError):  # the session's end does it then
                    await self._plane.leave()  # logs take their time, and nobody reaches this broker now
                await self._broker.stop(epoch)
            await self._plane.close()

    async def _leave_to_others(self, broker: Broker, plane: ControlPlane) -> None:
        """Controlled shutdown, while listeners still answer: clients hear from here who leads now."""
        broker.replicating.about_to_stop()
        await plane.hand_over(_HAND_OVER_S)
        reign = plane.metadata.controller_epoch
        await broker.replicating.follow_no_more()
        if len(plane.metadata.brokers) > 1:
            await broker.found_others(_QUIET_S, _LINGER_S)
        if plane.metadata.controller_epoch != reign:  # another one, which does not know who is leaving
            await plane.hand_over(_HAND_OVER_S)


def _earlier_broker_id(directories: tuple[str, ...]) -> int | None:
    """Broker id that the data directories hold from an earlier run. Raises StartError.

    One that cannot be read is no obstacle while others can: it will be out of use.
    """
    unreadable = []
    for path in directories:
        try:
            found = read_meta_properties(f"{path}/{META_PROPERTIES}")
        except CheckpointDamaged as error:
            raise StartError(str(error)) from error
        except OSError as error:
            unreadable.append(f"log directory {path} cannot be read: {_reason(error)}")
            continue
        if found is not None:
            return found.broker_id
    if len(unreadable) == len(directories):
        raise StartError("; ".join(unreadable))
    return None


def _topics_in(directories: list[str]) -> set[str]:
    """Topics that have a partition directory here: not checkpoint files, nor what is deleted or set aside."""
    found = set()
    for path in directories:
        for entry in os.scandir(path):
            topic, _, number = entry.name.rpartition("-")
            if topic and number.isdigit() and entry.is_dir():
                found.add(topic)
    return found


def _advertised(config: BrokerConfig, ports: dict[str, int]) -> tuple[Endpoint, ...]:
    """What to register: the bound port where 0 was asked for, and a name for "all interfaces"."""
    return tuple(
        endpoint._replace(host=advertised_host(endpoint.host), port=endpoint.port or ports[endpoint.name])
        for endpoint in config.advertised_endpoints
    )


def _reason(error: OSError) -> str:
    """The system's own words; event loops wrap them in theirs. A name that is not found has no errno."""
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno) if error.errno else str(error)
