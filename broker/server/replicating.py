"""What makes a broker one of several: it copies what others lead, and tells the controller who is in sync.

Ties `broker.replication` to the network: connections to leaders, requests to whoever is the controller, and
the periodic look for followers that have fallen behind. Must not decide anything itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.config import BrokerConfig, TopicConfig
from broker.control.metadata_cache import MetadataCache
from broker.replication import ReplicaManager
from broker.replication.fetchers import FetcherSettings, ReplicaFetchers
from broker.replication.isr_updates import IsrUpdates
from broker.replication.throttle import Throttle
from protocol.client import Connection
from protocol.client.errors import ConnectError
from protocol.client.pool import ConnectionPool
from protocol.messages.alter_partition_request import AlterPartitionRequest
from protocol.messages.alter_partition_response import AlterPartitionResponse

if TYPE_CHECKING:
    from broker.replication.replicas import Leader
    from broker.server.periodic import PeriodicTasks

_LANE = "isr"
_LOOK_FOR_CONTROLLER_S = 0.5
"""A controller that stands still is not waited for once there is another."""


class Replicating:
    """Set up before the first order of a controller arrives, closed after the last listener."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        topic_config: Callable[[str], TopicConfig],
    ) -> None:
        self.leader_throttle = Throttle(
            replicas.broker_id, lambda topic: topic_config(topic).leader_replication_throttled_replicas
        )
        self.follower_throttle = Throttle(
            replicas.broker_id, lambda topic: topic_config(topic).follower_replication_throttled_replicas
        )
        self._config = config
        self._replicas = replicas
        self._metadata = metadata
        timeout_s = config.controller_socket_timeout_ms / 1000
        self._to_controller = ConnectionPool(
            f"broker-{replicas.broker_id}-isr", metadata.peer_security, timeout_s, timeout_s
        )
        self.isr_updates = IsrUpdates(replicas.broker_id, self._broker_epoch, self._ask_controller)
        self.fetchers = ReplicaFetchers(
            FetcherSettings(
                broker_id=replicas.broker_id,
                max_wait_ms=config.replica_fetch_wait_max_ms,
                min_bytes=config.replica_fetch_min_bytes,
                max_bytes=config.replica_fetch_max_bytes,
                response_max_bytes=config.replica_fetch_response_max_bytes,
                backoff_s=config.replica_fetch_backoff_ms / 1000,
                timeout_s=config.replica_socket_timeout_ms / 1000,
            ),
            self._connect,
            broker_epoch=self._broker_epoch,
            throttle=self.follower_throttle,
        )
        replicas.fetchers = self.fetchers
        replicas.proposer = self.isr_updates.propose

    def limit(self, in_force: BrokerConfig, now: float) -> None:
        """Take up the limits on replicas that move, which change while brokers run."""
        self.leader_throttle.set_rate(in_force.leader_replication_throttled_rate, now)
        self.follower_throttle.set_rate(in_force.follower_replication_throttled_rate, now)

    def start(self, periodic: PeriodicTasks) -> None:
        self.isr_updates.start()
        max_lag_s = self._config.replica_lag_time_max_ms / 1000
        periodic.every(max_lag_s / 2, "ISR shrinking", lambda: self._shrink(max_lag_s))

    def about_to_stop(self) -> None:
        """What this broker leads now is not followed once it is handed over."""
        self.fetchers.follow_no_more((each.topic_id, each.index) for each in self._replicas if each.is_leader)

    async def follow_no_more(self) -> None:
        """Others have been told not to wait for this broker's copies."""
        await self.fetchers.close()

    async def close(self) -> None:
        await self.isr_updates.close()
        await self.fetchers.close()
        await self._to_controller.close()

    async def _shrink(self, max_lag_s: float) -> None:
        self._replicas.shrink(max_lag_s)

    def _broker_epoch(self) -> int:
        return self._metadata.broker_epoch

    async def _connect(self, leader: Leader) -> Connection:
        """On our own inter-broker listener, as Kafka's `makeFollowers`: the controller's order names the
        leader as the controller reaches it, and listeners of two sites may lead over different networks."""
        security = self._metadata.peer_security
        seen = self._metadata.endpoint(leader.broker_id, self._config.inter_broker_listener) or leader
        return await Connection.open(
            seen.host,
            seen.port,
            ssl=security.ssl,
            sasl=security.sasl,
            client_id=f"broker-{self._replicas.broker_id}-fetcher",
            timeout_s=self._config.replica_socket_timeout_ms / 1000,
        )

    async def _ask_controller(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        controller = self._metadata.controller_id
        address = self._metadata.endpoint(controller, self._config.inter_broker_listener)
        if address is None:
            raise ConnectError("no controller is known")
        connection = await self._to_controller.get((address.host, address.port), _LANE)
        sent = asyncio.ensure_future(connection.send(request))
        try:
            while not sent.done():
                await asyncio.wait((sent,), timeout=_LOOK_FOR_CONTROLLER_S)
                if self._metadata.controller_id != controller and not sent.done():
                    raise ConnectError(f"broker {controller} is not the controller any more")
            return sent.result()
        finally:
            sent.cancel()
            await asyncio.gather(sent, return_exceptions=True)
