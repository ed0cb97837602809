"""A stopping broker's side of a controlled shutdown: ask the controller to have others lead what it leads.

Owns who is asked, how often and for how long: the controller may be changing at that very moment, may be this
broker itself, and followers may be on their way back into the ISR. Must not know logs, listeners or how the
controller does it (`controller_jobs.hand_over`). (Kafka: `KafkaServer.controlledShutdown`.)
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from broker.config import BrokerConfig
from broker.control.controller_store import ControllerMoved
from broker.control.metadata_cache import MetadataCache
from protocol.client import Connection
from protocol.client.errors import ConnectError
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages.controlled_shutdown_request import ControlledShutdownRequest
from protocol.types import TopicPartition

T = TypeVar("T")

_log = logging.getLogger("isthmus.broker")
_LOOK_S = 0.05
_GATHER_S = 0.3
"""Followers come back one after the other: those of this time are one try."""
_WITHOUT_ZOOKEEPER_S = 5.0
"""A session moves to another server in less; without any server no controller can write."""


class LocalController(Protocol):
    """This broker's own, which may be the one that reigns (`controller.Controller`)."""

    @property
    def active(self) -> bool: ...

    async def leave(self, broker_id: int, broker_epoch: int = -1) -> list[TopicPartition]: ...


class ControlledShutdown:
    """`connected` tells whether ZooKeeper is there for this broker, which matters if it is the controller."""

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

        `controlled.shutdown.max.retries` times without progress, with `controlled.shutdown.retry.backoff.ms`
        between them or less: once there is another controller, or followers are in sync, it is tried again.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await _unless(self._without_zookeeper(), self._try())
        except TimeoutError:
            _log.warning("leadership is not handed over within %g s before stopping", timeout_s)
        except ControllerMoved as error:
            _log.warning("leadership is not handed over before stopping: %s", error)

    async def _try(self) -> None:
        left: list[TopicPartition] = []
        vain, tries = 0, max(1, self._config.controlled_shutdown_max_retries)
        while await self._can_ask():
            asked, before = self._reigning, left
            ready = set(filter(self._has_changed, before))
            try:
                left = await self._ask_whoever_reigns()
            except (ControllerMoved, ProtocolError, OSError) as error:
                _log.warning("leadership is not handed over before stopping: %s", error)
                vain += 1
                if vain >= tries:
                    break
                await self._until(lambda asked=asked: self._reigning != asked)  # type: ignore[misc]
                continue
            left = [each for each in left if self._others(each)]
            if not left:
                return
            vain = 0 if before and len(left) < len(before) else vain + 1
            if vain >= tries:
                break
            await self._until_worth_while(asked, [each for each in left if each not in ready])
        if left:
            _log.warning(
                "nobody else is in sync to take over %d partitions from this broker before it stops, %s",
                len(left),
                f"{left[0]} for one",
            )

    async def _can_ask(self) -> bool:
        """Waits until this broker, if it is the controller, can write."""
        known = self._metadata.brokers
        if self._config.broker_id not in known or (len(known) == 1 and not self._connected()):
            return False  # no controller has ever told it to lead anything, or nobody else is there
        while self._controller.active and not self._connected():
            await self._metadata.wait_until(self._connected, _LOOK_S)
        return True

    async def _without_zookeeper(self) -> str:
        """Ends when it has been away for so long that nobody can write, as far as this broker can tell."""
        loop = asyncio.get_running_loop()
        seen = loop.time()
        while loop.time() - seen < _WITHOUT_ZOOKEEPER_S:
            await asyncio.sleep(_LOOK_S)
            if self._connected():
                seen = loop.time()
        return "ZooKeeper is not there"

    @property
    def _reigning(self) -> tuple[int, bool]:
        return self._metadata.controller_id, self._controller.active

    async def _until(self, condition: Callable[[], bool], at_most_s: float | None = None) -> None:
        loop = asyncio.get_running_loop()
        backoff_s = self._config.controlled_shutdown_retry_backoff_ms / 1000
        deadline = loop.time() + (backoff_s if at_most_s is None else at_most_s)
        while (more := deadline - loop.time()) > 0:
            if await self._metadata.wait_until(condition, min(more, _LOOK_S)):
                return

    async def _until_worth_while(self, asked: tuple[int, bool], hoped: list[TopicPartition]) -> None:
        """All that is hoped for is there, or some of it after a while, or another controller reigns."""
        await self._until(
            lambda: self._reigning != asked or (bool(hoped) and all(map(self._has_changed, hoped))), _GATHER_S
        )
        await self._until(lambda: self._reigning != asked or any(map(self._has_changed, hoped)))

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

    async def _ask_whoever_reigns(self) -> list[TopicPartition]:
        """What nobody can take over. Raises ControllerMoved, ProtocolError, OSError.

        A controller that stands still answers nothing: once another one reigns, its answer is not waited for.
        """
        if self._controller.active:
            return await self._controller.leave(self._config.broker_id, self._metadata.broker_epoch)
        return await _unless(self._moved(self._reigning), self._ask())

    async def _moved(self, asked: tuple[int, bool]) -> str:
        while not await self._metadata.wait_until(lambda: self._reigning != asked, _LOOK_S):
            pass
        return f"broker {asked[0]} has not answered, and is not the controller any more"

    async def _ask(self) -> list[TopicPartition]:
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


async def _unless(reason: Coroutine[Any, Any, str], work: Coroutine[Any, Any, T]) -> T:
    """Do this. Raises ControllerMoved once there is a reason not to go on."""
    working, looking = asyncio.create_task(work), asyncio.create_task(reason)
    try:
        await asyncio.wait((working, looking), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ControllerMoved(looking.result())
    finally:
        working.cancel()
        looking.cancel()
        await asyncio.gather(working, looking, return_exceptions=True)
