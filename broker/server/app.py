"""The assembled broker: every part that handlers reach through `context.broker`, and what runs beside them.

Owns the listeners, the threads that wait for disks, the periodic work on logs, and the order in which these
start and stop. Knows nothing of command lines, ZooKeeper sessions or registration: `broker.process` builds
those parts and passes them to `assemble`. Tests do the same with fewer of them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Protocol

from broker.clock import Clock
from broker.config import BrokerConfig, Endpoint
from broker.config.security_settings import ListenerSecurity
from broker.control.features import TRANSACTION_VERSION, Finalized
from broker.control.metadata_cache import MetadataCache
from broker.control.topic_admin import TopicAdmin
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.producer_ids import Block, ProducerIds
from broker.coordinator.settings import GroupSettings
from broker.coordinator.transactions.coordinator import TransactionCoordinator
from broker.coordinator.transactions.markers import MarkerSender, MarkerWriter
from broker.coordinator.transactions.settings import TransactionSettings
from broker.log import LogConfig, LogManager
from broker.log.cleaner.log_cleaner import LogCleaner
from broker.replication import ReplicaManager
from broker.security.credential_store import CredentialStore
from broker.security.listeners import mechanisms, session_times_ms, tls_context
from broker.server.cleaner_metrics import add_cleaner_metrics
from broker.server.connection_limits import ConnectionLimits
from broker.server.damage import Damage
from broker.server.dispatch import Dispatcher
from broker.server.fetch_sessions import FetchSessionCache
from broker.server.listener import BACKLOG, Listener
from broker.server.metrics import BrokerMetrics
from broker.server.metrics_of_parts import add_part_metrics
from broker.server.periodic import PeriodicTasks
from broker.server.registry import Registry
from broker.server.replicating import Replicating
from broker.server.request_memory import RequestMemory
from broker.server.sasl_gate import SaslGate
from broker.server.transaction_members import TransactionMembers
from broker.server.turns import CallsInTurns

if TYPE_CHECKING:
    from broker.control.controller import Controller

logger = logging.getLogger("isthmus.broker")

# Reads that miss the page cache; more threads than disks, so that one slow file does not hold up the others.
DISK_READERS = 4
# Closed segments are forced to disk this often at least: recovery after a crash reads what was not.
FLUSH_INTERVAL_S = 10.0
SWEEP_INTERVAL_S = 5.0
# Partitions whose retention is looked at before others get their turn: a few milliseconds.
RETAINED_IN_A_TURN = 100


class Features(Protocol):
    """What the cluster has finalized, as it is now, and the way to change it (`broker.control.features`)."""

    finalized: Finalized

    async def brokers_without(self, feature: str, level: int) -> list[int]: ...

    async def change(self, edit: Callable[[Mapping[str, int]], Mapping[str, int]]) -> None: ...


class Broker:
    """What handlers may use. `controller` is None in a broker that never stands for election."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        logs: LogManager,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        topics: TopicAdmin,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        markers: MarkerWriter,
        transactions: TransactionCoordinator,
        members: TransactionMembers,
        features: Features,
        controller: Controller | None = None,
        registry: Registry | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.logs = logs
        self.replicas = replicas
        self.metadata = metadata
        self.topics = topics
        self.credentials = CredentialStore(topics.configs)
        self.groups = groups
        self.producer_ids = producer_ids
        self.markers = markers
        self.transactions = transactions
        self.transaction_members = members
        self.features = features
        self.controller = controller
        self.registry = registry if registry is not None else Registry.discover()
        self.metrics = BrokerMetrics()
        self.damage = Damage()
        self.woken = CallsInTurns()
        """Clients' fetches that have heard of news."""
        self.fetch_sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots)
        self.dispatcher = Dispatcher(self, self.registry)
        self.listeners: dict[str, Listener] = {}
        self._connection_limits = ConnectionLimits.from_config(config, _backlog(config))
        limit = config.queued_max_request_bytes
        self._request_memory = RequestMemory(limit) if limit > 0 else None
        self.disk_readers = ThreadPoolExecutor(DISK_READERS, thread_name_prefix="disk-reader")
        self._disk_keeper = ThreadPoolExecutor(1, thread_name_prefix="disk-keeper")
        self._periodic = PeriodicTasks()
        self.replicating = Replicating(
            config, replicas, metadata, lambda topic: topics.configs.effective(topic)
        )
        self.replicating.limit(topics.configs.in_force, clock.monotonic())
        self.cleaner = LogCleaner(logs, clock, lambda: topics.configs.in_force)
        add_part_metrics(self)
        add_cleaner_metrics(self.metrics, self.cleaner.statistics)

    async def listen(self) -> dict[str, int]:
        """Open all listeners; returns the bound port of each. Raises ConfigError, OSError.

        Requests are served from here on, so everything that handlers use must be there.
        """
        self.groups.start()
        self.transactions.start()
        self._start_periodic()
        self.replicating.start(self._periodic)
        self.cleaner.start()
        return {endpoint.name: await self._open(endpoint) for endpoint in self.config.endpoints}

    async def found_others(self, quiet_s: float, longest_s: float) -> None:
        """After leadership has moved: wait until clients have been told by this broker who leads now.

        Nobody asks anything any more for `quiet_s` then; those who ask for other things get `longest_s`.
        """
        begun = self.clock.monotonic()
        while (now := self.clock.monotonic()) < begun + longest_s:
            latest = max((listener.last_active for listener in self.listeners.values()), default=begun)
            left = max(latest, begun) + quiet_s - now
            if left <= 0:
                return
            await asyncio.sleep(min(left, begun + longest_s - now))

    async def stop_serving(self) -> None:
        """Close the listeners, and follow nobody."""
        for listener in self.listeners.values():
            await listener.close()
        await self._periodic.stop()
        await self.replicating.close()

    async def stop(self, broker_epoch: int = -1) -> None:
        """Finish what runs, close the logs so that the next start reads nothing twice.

        `broker_epoch` goes into the marker of a clean shutdown (KIP-966).
        """
        await self.stop_serving()
        await self.cleaner.stop()
        await self.transactions.close()
        await self.transaction_members.close()
        await self.groups.close()
        for executor in (self.disk_readers, self._disk_keeper):
            await asyncio.to_thread(executor.shutdown, wait=True, cancel_futures=True)
        await asyncio.to_thread(self.logs.close, broker_epoch)

    async def _open(self, endpoint: Endpoint) -> int:
        config = self.config
        security = config.security_of(endpoint.name)
        listener = Listener(
            endpoint.name,
            self.dispatcher.serve,
            max_frame=config.socket_request_max_bytes,
            idle_s=config.connections_max_idle_ms / 1000,
            now=self.clock.monotonic,
            backlog=_backlog(config),
            buffers=_socket_buffers(config),
            limits=self._connection_limits,
            memory=self._request_memory,
            tls=tls_context(security),
            gate=self._gate(security) if security.authenticated else None,
        )
        self.listeners[endpoint.name] = listener
        return await listener.open(endpoint.host, endpoint.port)

    def _gate(self, security: ListenerSecurity) -> SaslGate:
        return SaslGate.of_listener(
            self.dispatcher.serve,
            mechanisms(security, self.credentials.find),
            security,
            session_ms=session_times_ms(security),
            max_frame=self.config.socket_request_max_bytes,
            now_s=self.clock.monotonic,
        )

    # -- periodic work

    def _start_periodic(self) -> None:
        config, every = self.config, self._periodic.every
        every(config.log_retention_check_interval_ms / 1000, "log retention", self._retain)
        flush_s = min(config.log_flush_scheduler_interval_ms / 1000, FLUSH_INTERVAL_S)
        every(flush_s, "log flush", lambda: self._keep(self.logs.flush_tick, self.clock.now_ms()))
        every(
            config.log_flush_offset_checkpoint_interval_ms / 1000,
            "log checkpoints",
            lambda: self._keep(self.logs.checkpoint_tick),
        )
        every(
            SWEEP_INTERVAL_S, "file deletion", lambda: self._keep(self.logs.sweep_tick, self.clock.now_ms())
        )

    async def _retain(self) -> None:
        now_ms = self.clock.now_ms()
        for number, tp in enumerate(self.logs, 1):
            self.logs.retain(tp, now_ms)
            if number % RETAINED_IN_A_TURN == 0:
                await asyncio.sleep(0)

    async def _keep(self, work: Callable[..., object], *arguments: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._disk_keeper, work, *arguments)


def _backlog(config: BrokerConfig) -> int:
    return _given(config, "socket.listen.backlog.size", config.socket_listen_backlog_size) or BACKLOG


def _given(config: BrokerConfig, name: str, value: int) -> int | None:
    """The value, if somebody set it. Kafka's defaults for sockets are made for slower days."""
    return value if name in config.given and value > 0 else None


def _socket_buffers(config: BrokerConfig) -> dict[int, int]:
    """Sizes by socket option; nothing where the kernel shall decide."""
    wanted = {
        socket.SO_SNDBUF: _given(config, "socket.send.buffer.bytes", config.socket_send_buffer_bytes),
        socket.SO_RCVBUF: _given(config, "socket.receive.buffer.bytes", config.socket_receive_buffer_bytes),
    }
    return {option: size for option, size in wanted.items() if size is not None}


def assemble(
    *,
    broker_id: int,
    config: BrokerConfig,
    clock: Clock,
    logs: LogManager,
    metadata: MetadataCache,
    topics: TopicAdmin,
    claim_producer_ids: Callable[[], Awaitable[Block]],
    features: Features,
    controller: Controller | None = None,
) -> Broker:
    """Build the parts that hold no connection to ZooKeeper and tie them together."""
    replicas = ReplicaManager(
        broker_id, logs, clock, topic_config=topics.topic_config, knows=metadata.has_partition
    )
    groups = GroupCoordinator(clock=clock, settings=GroupSettings.from_config(config), metadata=metadata)
    replicas.on_leadership_change(groups.on_leadership_change)
    producer_ids = ProducerIds(claim_producer_ids)
    markers = MarkerWriter(replicas, clock.now_ms, groups.offsets.on_transaction_end)
    settings = TransactionSettings.from_config(config)
    transactions = TransactionCoordinator(
        clock=clock,
        settings=settings,
        metadata=metadata,
        producer_ids=producer_ids,
        markers=MarkerSender(markers, metadata, settings.listener),
        version=lambda: features.finalized.level(TRANSACTION_VERSION),
    )
    replicas.on_leadership_change(transactions.on_leadership_change)
    topics.configs.on_change(lambda topic: logs.set_config(topic, topics.topic_config(topic)))
    broker = Broker(
        config=config,
        clock=clock,
        logs=logs,
        replicas=replicas,
        metadata=metadata,
        topics=topics,
        groups=groups,
        producer_ids=producer_ids,
        markers=markers,
        transactions=transactions,
        members=TransactionMembers(
            transactions,
            markers,
            metadata,
            settings.listener,
            verifies=config.transaction_partition_verification_enable,
        ),
        features=features,
        controller=controller,
    )
    topics.configs.on_broker_change(partial(_take_up, broker))
    return broker


def _take_up(broker: Broker) -> None:
    """Dynamic settings of the broker were changed: the defaults of all topics may be others."""
    configs: dict[str, LogConfig] = {}
    for tp in broker.logs:
        log = broker.logs.get(tp)
        if log is not None:
            if tp.topic not in configs:
                configs[tp.topic] = broker.topics.topic_config(tp.topic)
            log.configure(configs[tp.topic])
    broker.logs.set_producer_expiration(broker.topics.configs.in_force.producer_id_expiration_ms)
    broker.cleaner.reconfigure()
    broker.replicating.limit(broker.topics.configs.in_force, broker.clock.monotonic())
