"""A stopping broker's side of a controlled shutdown: ask the controller to have others lead what it leads.

Owns who is asked, how often and for how long: the controller may be changing at that very moment, may be this
broker itself, and followers may be on their way back into the ISR. Must not know logs, listeners or how the
controller does it (`controller_jobs.hand_over`). (Kafka: `KafkaServer.controlledShutdown`.)
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from broker.config import BrokerConfig
from broker.control.controller_store import ControllerMoved
from broker.control.metadata_cache import MetadataCache
from protocol.client import Connection
from protocol.client.errors import ConnectError
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages.controlled_shutdown_request import ControlledShutdownRequest
from protocol.types import TopicPartition

_log = logging.getLogger("isthmus.broker")
_LOOK_S = 0.05


class LocalController(Protocol):
    """This broker's own, which may be the one that reigns (`controller.Controller`)."""

    @property
    def active(self) -> bool: ...

    async def leave(self, broker_id: int) -> list[TopicPartition]: ...


class ControlledShutdown:
    """`connected` tells whether ZooKeeper is there: without it no controller can write anything."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataCache,
        controller: LocalController,
        connected: Callable[[], bool],
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._controller = controller
        self._connected = connected

    async def hand_over(self, timeout_s: float) -> None:
        """Have leadership moved, and wait until brokers know. What cannot be moved is said in the log.

        `controlled.shutdown.max.retries` times, with `controlled.shutdown.retry.backoff.ms` between them or
        less: once there is another controller, or a follower is in sync, it is tried again at once.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._try()
        except TimeoutError:
            _log.warning("leadership is not handed over within %g s before stopping", timeout_s)

    async def _try(self) -> None:
        left: list[TopicPartition] = []
        tries = max(1, self._config.controlled_shutdown_max_retries)
        for more in reversed(range(tries)):
            if not self._connected() or self._config.broker_id not in self._metadata.brokers:
                return  # nothing can be written, or no controller has ever told this broker to lead anything
            asked = self._reigning
            try:
                left = await self._ask()
            except (ControllerMoved, ProtocolError, OSError) as error:
                _log.warning("leadership is not handed over before stopping: %s", error)
                if more:
                    await self._until(lambda asked=asked: self._reigning != asked)  # type: ignore[misc]
                continue
            left = [each for each in left if self._others(each)]
            if not left:
                return
            if more:
                await self._until(lambda left=left: any(map(self._has_changed, left)))  # type: ignore[misc]
        if left:
            _log.warning(
                "nobody else is in sync to take over %d partitions from this broker before it stops, %s",
                len(left),
                f"{left[0]} for one",
            )

    @property
    def _reigning(self) -> tuple[int, bool]:
        return self._metadata.controller_id, self._controller.active

    async def _until(self, condition: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.controlled_shutdown_retry_backoff_ms / 1000
        while loop.time() < deadline and self._connected():
            if await self._metadata.wait_until(condition, _LOOK_S):
                return

    def _others(self, partition: TopicPartition) -> list[int]:
        """Living brokers that hold it too."""
        info = self._metadata.partition(*partition)
        replicas = () if info is None else info.replicas
        return [
            each for each in replicas if each in self._metadata.brokers and each != self._config.broker_id
        ]

    def _has_changed(self, partition: TopicPartition) -> bool:
        """Whether somebody else is in sync by now, or nobody else is there any more."""
        info = self._metadata.partition(*partition)
        others = self._others(partition)
        return info is None or not others or any(each in info.isr for each in others)

    async def _ask(self) -> list[TopicPartition]:
        """What nobody can take over. Raises ControllerMoved, ProtocolError, OSError."""
        if self._controller.active:
            return await self._controller.leave(self._config.broker_id)
        metadata, number = self._metadata, self._config.broker_id
        address = metadata.endpoint(metadata.controller_id, self._config.inter_broker_listener)
        if address is None:
            raise ConnectError("no controller is known")
        security = metadata.peer_security
        connection = await Connection.open(
            address.host,
            address.port,
            client_id="controlled-shutdown",
            ssl=security.ssl,
            sasl=security.sasl,
        )
        try:
            answer = await connection.send(
                ControlledShutdownRequest(broker_id=number, broker_epoch=metadata.broker_epoch)
            )
        finally:
            await connection.close()
        if answer.error_code:
            raise KafkaError(ErrorCode.of(answer.error_code), f"broker {metadata.controller_id} refuses")
        return [TopicPartition(each.topic_name, each.partition_index) for each in answer.remaining_partitions]
