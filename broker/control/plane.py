"""The parts of a broker that live on its ZooKeeper session, in the order in which they come and go.

`open` gives what must be known before the log is opened: cluster id, broker id, topic settings. `join`
makes the broker visible once it listens. Must not know connections of clients, logs or processes.
"""

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Iterable
from typing import Self

from broker.clock import Clock
from broker.config import BrokerConfig, Endpoint
from broker.control import identity, paths
from broker.control.config_store import ConfigStore
from broker.control.controlled_shutdown import ControlledShutdown
from broker.control.controller import Controller, Rebalancing
from broker.control.controller_store import ControllerStore
from broker.control.features import SUPPORTED, FeatureStore
from broker.control.last_replica import PreviousEnd
from broker.control.log_dir_events import LogDirEvents
from broker.control.metadata_cache import MetadataCache
from broker.control.nodes import BrokerNode, ProducerIdBlock
from broker.control.producer_id_blocks import claim_block
from broker.control.registration import AlreadyRegistered, Registration
from broker.control.run_record import RunRecord
from broker.control.session_file import Session, SessionFile
from broker.control.session_lease import SessionLease
from broker.control.topic_admin import TopicAdmin
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import SessionEvent, SessionExpired
from broker.replication.lease import Lease
from protocol.client import ClientSecurity
from protocol.client.security import PLAINTEXT

_log = logging.getLogger("isthmus.broker")
_TELL_EVERY_S = 10.0
_JOIN_S = 60.0
"""As Kafka's initial.broker.registration.timeout.ms."""


class NoController(Exception):
    """This broker is registered, and no controller has taken it in."""


class ControlPlane:
    """`failed` is done, with the reason, when this broker can not go on."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        config: BrokerConfig,
        cluster_id: str,
        clock: Clock,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        self.zookeeper = zookeeper
        self.config = config
        self.metadata = MetadataCache(cluster_id, config.broker_id, security)
        self.configs = ConfigStore(zookeeper, config, clock)
        self.features = FeatureStore(zookeeper)
        self.topics = TopicAdmin(zookeeper, config, self.configs, self.metadata)
        self.failed: asyncio.Future[AlreadyRegistered] = asyncio.get_running_loop().create_future()
        self.controller = Controller(
            zookeeper,
            ControllerStore(zookeeper, config.broker_id, clock),
            config.broker_id,
            listener=config.inter_broker_listener,
            socket_timeout_s=config.controller_socket_timeout_ms / 1000,
            unclean=lambda topic: self.configs.effective(topic).unclean_leader_election_enable,
            security=security,
            rebalancing=self._rebalancing,
            guarded=lambda: not self.configs.in_force.unclean_last_replica_election_enable,
            learn=self.configs.load_missing,
        )
        self.configs.on_change(self.controller.settings_changed)
        self.configs.on_broker_change(self.controller.settings_changed)
        self.log_dir_events = LogDirEvents(zookeeper, config.broker_id)
        self._clock = clock
        self._registration: Registration | None = None
        self._session_file: SessionFile | None = None
        self._session_lease: SessionLease | None = None
        self.previous_end = PreviousEnd.CLEAN
        """Of this broker; set it before `join`."""

    @classmethod
    async def open(
        cls,
        config: BrokerConfig,
        clock: Clock,
        *,
        known_broker_id: int | None,
        security: ClientSecurity = PLAINTEXT,
    ) -> Self:
        """Connect. `known_broker_id` is what the data directory says of an earlier run; `security` is how
        this broker speaks to others.

        Raises ZooKeeperUnavailable.
        """
        assert config.zookeeper_connect is not None
        zookeeper = await ZooKeeper.connect(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            wait_ms=config.zookeeper_wait_ms,
            preferred=config.zookeeper_preferred,
        )
        zookeeper.any_session = True  # until this broker is registered
        try:
            await identity.prepare_tree(zookeeper)
            cluster_id = await identity.cluster_id(zookeeper)
            if config.broker_id < 0:
                number = known_broker_id
                if number is None:
                    number = await identity.next_broker_id(zookeeper, config)
                config = dataclasses.replace(config, broker_id=number)
            plane = cls(zookeeper, config, cluster_id, clock, security)
            await plane.configs.start()
            await plane.features.start()
        except BaseException:
            await zookeeper.close()
            raise
        zookeeper.on_session(_log_session)
        return plane

    def _rebalancing(self) -> Rebalancing | None:
        settings = self.configs.in_force
        if not settings.auto_leader_rebalance_enable:
            return None
        return Rebalancing(
            settings.leader_imbalance_check_interval_seconds, settings.leader_imbalance_per_broker_percentage
        )

    async def load_settings(self, topics: Iterable[str]) -> None:
        """Read the settings of topics whose logs are about to be opened."""
        await self.configs.load_missing(topics)

    async def replace_session(self, file: SessionFile) -> None:
        """End the session of an earlier run that was killed, and remember ours.

        The caller holds the lock of the directory of the file: the earlier process is dead.
        """
        earlier = file.read()
        if earlier is not None and earlier.session_id != self.zookeeper.session_id:
            await ZooKeeper.end_session(self.zookeeper.address, *earlier)
        self._session_file = file
        self._remember(SessionEvent.RENEWED)
        self.zookeeper.on_session(self._remember)

    def _remember(self, event: SessionEvent) -> None:
        if event is SessionEvent.RENEWED and self._session_file is not None:
            session = Session(self.zookeeper.session_id, self.zookeeper.session_password)
            self._session_file.write(session)

    def keep_lease(self, lease: Lease) -> None:
        """Let leaders here lead as long as ZooKeeper hears from this broker; before `join`."""
        self._session_lease = SessionLease(lease, self.zookeeper, self.metadata)
        self._session_lease.start()

    @property
    def may_lead(self) -> bool:
        """Whether ZooKeeper has heard from this broker of late, so that nobody else may lead in its place."""
        return self._session_lease is not None and self._session_lease.holds

    def run_record(self, directories: list[str]) -> RunRecord:
        """Of this broker; the caller holds the locks of the directories."""
        return RunRecord(self.zookeeper, self.config.broker_id, directories)

    async def claim_producer_ids(self) -> ProducerIdBlock:
        return await claim_block(self.zookeeper, self.config.broker_id)

    async def join(self, endpoints: tuple[Endpoint, ...], *, wait_s: float = _JOIN_S) -> None:
        """Register, run for controller, and wait until the controller has told us about ourselves.

        Raises AlreadyRegistered, NoController.
        """
        self._registration = Registration(
            self.zookeeper,
            self.config.broker_id,
            BrokerNode(
                endpoints,
                self.config.broker_rack,
                features=SUPPORTED,
                previous_end="" if self.previous_end is PreviousEnd.CLEAN else self.previous_end,
            ),
            self._clock,
            self.config.zookeeper_session_timeout_ms,
        )
        self._registration.on_epoch(functools.partial(setattr, self.metadata, "broker_epoch"))
        self._registration.on_lost(self._lost)
        await self._registration.register()
        self.zookeeper.any_session = False  # from here on each part knows what to do without it
        self.controller.start()
        self.log_dir_events.start()
        await self._taken_in(wait_s)
        self._registration.trusted()

    async def _taken_in(self, wait_s: float) -> None:
        number, loop = self.config.broker_id, asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while (left := deadline - loop.time()) > 0:
            told = await self.metadata.wait_until(
                lambda: number in self.metadata.brokers, min(left, _TELL_EVERY_S)
            )
            if told:
                return
            _log.warning("broker %d is registered and waits for a controller", number)
        raise NoController(await self._why_alone(wait_s))

    async def _why_alone(self, wait_s: float) -> str:
        number = self.config.broker_id
        text = f"broker {number} is registered, but no controller has taken it in within {wait_s:g} s: "
        if self.controller.failure:
            return f"{text}as controller it fails itself ({self.controller.failure})"
        if not self.zookeeper.connected:
            return f"{text}ZooKeeper at {self.zookeeper.address} does not answer"
        node = await self.zookeeper.get(paths.CONTROLLER)
        if node is None:
            return f"{text}there is none, look into the logs of the other brokers"
        named = node.data.decode(errors="replace")
        return (
            f"{text}the one that {paths.CONTROLLER} in ZooKeeper names ({named}) does not reach this broker "
            "at its advertised listener, or is none; look into its log"
        )

    async def hand_over(self, timeout_s: float) -> None:
        """Ask the controller to move leadership away from this broker (controlled shutdown)."""
        shutdown = ControlledShutdown(
            self.config, self.metadata, self.controller, lambda: self.zookeeper.connected
        )
        await shutdown.hand_over(timeout_s)

    def lead_no_more(self) -> None:
        """What could not be handed over takes no writes any more that another leader would not have."""
        if self._session_lease is not None:
            self._session_lease.end()

    async def leave(self) -> None:
        """Deregister and resign, once nobody is served any more; the session goes on until `close`.

        In this order: the next controller must not find a broker that it believes to stay.
        """
        if self._registration is not None:
            await self._registration.deregister()
        await self.controller.close()

    async def close(self) -> None:
        """End what `leave` leaves, and the session."""
        try:
            await self.leave()
            await self.log_dir_events.close()
            await self.configs.close()
            await self.features.close()
        except SessionExpired:
            pass  # nothing of ours is left in ZooKeeper
        finally:
            if self._session_lease is not None:
                await self._session_lease.close()
            await self.zookeeper.close()
            if self._session_file is not None:
                self._session_file.remove()

    def _lost(self, error: AlreadyRegistered) -> None:
        if not self.failed.done():
            self.failed.set_result(error)


def _log_session(event: SessionEvent) -> None:
    _log.warning("ZooKeeper: %s", event.value)
