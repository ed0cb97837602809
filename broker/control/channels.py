"""The controller's connections: one queue for each broker, sent in order, retried until the broker is gone.

A broker that does not answer holds up its own queue and nobody else's. Must not know what messages mean.
(Kafka: `ControllerChannelManager`.)
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from broker.control.orders import LiveBroker, Order
from protocol.client import ClientSecurity, Connection
from protocol.client.errors import ConnectError
from protocol.errors import ProtocolError

_log = logging.getLogger("isthmus.broker")
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class Channel:
    """Messages to one broker, as registered with one epoch."""

    def __init__(self, broker: LiveBroker, listener: str, timeout_s: float, security: ClientSecurity) -> None:
        self.broker = broker
        self._address = broker.address(listener)
        self._timeout_s = timeout_s
        self._security = security
        self._queue: asyncio.Queue[tuple[Order, asyncio.Future[Any]]] = asyncio.Queue()
        self._connection: Connection | None = None
        self._sender = asyncio.create_task(self._send_all(), name=f"orders for broker {broker.broker_id}")

    def send(self, order: Order) -> "asyncio.Future[Any]":
        """Queue a message. The future gets the answer, or is cancelled when the broker is gone."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((order, answer))
        return answer

    async def close(self) -> None:
        self._sender.cancel()
        await asyncio.gather(self._sender, return_exceptions=True)
        while not self._queue.empty():
            self._queue.get_nowait()[1].cancel()
        await self._disconnect()

    async def _send_all(self) -> None:
        while True:
            order, answer = await self._queue.get()
            try:
                response = await self._send(order)
            except asyncio.CancelledError:
                answer.cancel()
                raise
            if not answer.done():
                answer.set_result(response)

    async def _send(self, order: Order) -> Any:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                if self._connection is not None and self._connection.retired:
                    await self._disconnect()
                if self._connection is None:
                    self._connection = await Connection.open(
                        self._address.host,
                        self._address.port,
                        client_id="controller",
                        ssl=self._security.ssl,
                        sasl=self._security.sasl,
                        timeout_s=self._timeout_s,
                    )
                return await self._connection.send(order.request, encoded=order.encoded)
            except (ProtocolError, OSError) as error:
                level = logging.DEBUG if isinstance(error, ConnectError) else logging.WARNING
                _log.log(level, "order for broker %d is sent again: %s", self.broker.broker_id, error)
            await self._disconnect()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class Channels:
    """The channels to all living brokers."""

    def __init__(self, listener: str, timeout_s: float, security: ClientSecurity) -> None:
        self._listener = listener
        self._security = security
        self._timeout_s = timeout_s
        self._channels: dict[int, Channel] = {}

    async def connect(self, brokers: Mapping[int, LiveBroker]) -> None:
        """Open channels to new brokers and close those to brokers that are gone or came back anew."""
        for number, channel in list(self._channels.items()):
            if brokers.get(number) != channel.broker:
                await self._channels.pop(number).close()
        for number, broker in brokers.items():
            if number not in self._channels:
                self._channels[number] = Channel(broker, self._listener, self._timeout_s, self._security)

    def send(self, order: Order) -> "asyncio.Future[Any]":
        return self._channels[order.broker_id].send(order)

    async def close(self) -> None:
        await self.connect({})
