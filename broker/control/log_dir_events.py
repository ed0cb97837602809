"""Tells the controller that a log directory of this broker has failed, through ZooKeeper as Kafka does
(KIP-112).

Owns `/log_dir_event_notification/log_dir_event_<number>` and its JSON: the broker appends a node, the
controller reads and removes it. A session that is lost meanwhile does not lose the message. (Kafka:
`LogDirEventNotificationZNode`, `KafkaZkClient.propagateLogDirEvent`.)
"""

import asyncio
import json
import logging
from typing import Final

from broker.control.nodes import NodeFormatError
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import SessionEvent, SessionExpired, ZooKeeperError

_log = logging.getLogger("isthmus.broker")
PATH: Final = "/log_dir_event_notification"
_PREFIX: Final = f"{PATH}/log_dir_event_"
_FAILURE: Final = 1
_PAUSE_S: Final = 1.0


def encode(broker_id: int) -> bytes:
    return json.dumps({"version": 1, "broker": broker_id, "event": _FAILURE}, separators=(",", ":")).encode()


def decode(data: bytes) -> int | None:
    """The broker that has lost a directory; None for another event. Raises `NodeFormatError`."""
    try:
        value = json.loads(data)
        return int(value["broker"]) if value["event"] == _FAILURE else None
    except (ValueError, KeyError, TypeError) as error:
        raise NodeFormatError(f"log directory event: {error!r} in {data[:200]!r}") from error


class LogDirEvents:
    """`failed` may be called as often as directories fail; the controller asks about all of them at once."""

    def __init__(self, zookeeper: ZooKeeper, broker_id: int) -> None:
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._untold = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._zookeeper.on_session(self._session_event)
        self._task = asyncio.create_task(self._run(), name="log directory events")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def failed(self) -> None:
        self._untold = True
        self._wake.set()

    def _session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.RENEWED:
            self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._untold:
                continue
            try:
                await self._zookeeper.create_sequential(_PREFIX, encode(self._broker_id))
                self._untold = False
            except SessionExpired:
                continue  # the next session wakes this again
            except ZooKeeperError as error:
                _log.warning("the controller could not be told of a failed log directory: %s", error)
                await asyncio.sleep(_PAUSE_S)
                self._wake.set()
