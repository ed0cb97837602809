"""This broker's place in /brokers/ids: an ephemeral node that says where it listens and that it lives.

Who holds the number already is either the ghost of an earlier run of this broker, whose session ends by
itself, or a living broker. Only time tells them apart (addresses may be the same or reused), so registration
waits for one session timeout and then refuses, naming the holder; a living broker is never pushed out. After
the session was lost the broker registers again. The creation zxid of its node is its epoch (KIP-380).
Must not know the controller.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable

from broker.clock import Clock
from broker.control import paths
from broker.control.nodes import BrokerNode, NodeFormatError
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import Node, NodeExists, NoNode, SessionEvent, SessionExpired

_log = logging.getLogger("isthmus.broker")
_PAUSE_S = 0.2
_GRACE_S = 5.0


class AlreadyRegistered(Exception):
    """Another living broker has this number."""


class Registration:
    """`epoch` is the broker epoch of the current registration, -1 while there is none."""

    def __init__(
        self, zookeeper: ZooKeeper, broker_id: int, node: BrokerNode, clock: Clock, session_timeout_ms: int
    ) -> None:
        self.broker_id = broker_id
        self.epoch = -1
        self._zookeeper = zookeeper
        self._node = node
        self._clock = clock
        self._wait_s = session_timeout_ms / 1000 + _GRACE_S
        self._renewed = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._lost: list[Callable[[AlreadyRegistered], None]] = []
        self._epoch_listeners: list[Callable[[int], None]] = []

    async def register(self) -> None:
        """Register, and stay registered. Raises AlreadyRegistered, SessionExpired."""
        self._zookeeper.on_session(self._session_event)
        await self._register()
        self._keeper = asyncio.create_task(self._keep(), name="registration")

    def trusted(self) -> None:
        """A controller knows how the run before ended; a session that is lost from now on loses no record."""
        self._node = dataclasses.replace(self._node, previous_end="")

    async def deregister(self) -> None:
        """Take the node away, so that the controller need not wait for the session to end.

        A connection that is just moving to another server is waited for, a little.
        """
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self.epoch < 0:
            return
        self._set_epoch(-1)
        try:
            async with asyncio.timeout(2.0):
                await self._zookeeper.delete(paths.broker(self.broker_id))
        except (NoNode, SessionExpired, TimeoutError):
            return  # gone, or goes with the session

    def on_lost(self, callback: Callable[[AlreadyRegistered], None]) -> None:
        """`callback(error)` runs when another broker took the number while the session was lost."""
        self._lost.append(callback)

    def on_epoch(self, callback: Callable[[int], None]) -> None:
        """`callback(epoch)` runs with every new epoch, -1 when the registration is lost."""
        self._epoch_listeners.append(callback)

    def _set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        for callback in self._epoch_listeners:
            callback(epoch)

    async def _register(self) -> None:
        path = paths.broker(self.broker_id)
        data = dataclasses.replace(self._node, timestamp_ms=self._clock.now_ms()).encode()
        deadline = self._clock.monotonic() + self._wait_s
        told = False
        while True:
            with contextlib.suppress(NodeExists):
                await self._zookeeper.create(path, data, ephemeral=True)
            holder = await self._zookeeper.get(path)
            if holder is None:
                continue
            if holder.owner == self._zookeeper.session_id:
                self._set_epoch(holder.created)
                return
            if self._clock.monotonic() > deadline:
                raise AlreadyRegistered(self._refusal(holder))
            if not told:
                told = True
                _log.warning(
                    "broker %d is still registered as %s: waiting for that session to end",
                    self.broker_id,
                    _address(holder),
                )
            await asyncio.sleep(_PAUSE_S)

    def _refusal(self, holder: Node) -> str:
        return (
            f"broker id {self.broker_id} belongs to a living broker at {_address(holder)}: "
            "give this one another broker.id, or stop that one"
        )

    def _session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._set_epoch(-1)
        elif event is SessionEvent.RENEWED:
            self._renewed.set()

    async def _keep(self) -> None:
        while True:
            await self._renewed.wait()
            self._renewed.clear()
            try:
                await self._register()
            except SessionExpired:
                continue  # the next session wakes this again
            except AlreadyRegistered as error:
                for callback in self._lost:
                    callback(error)
                return
            _log.warning("broker %d registered again after its ZooKeeper session was lost", self.broker_id)


def _address(holder: Node) -> str:
    try:
        node = BrokerNode.decode(holder.data)
    except NodeFormatError:
        return "an unreadable address"
    return ", ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in node.endpoints)
