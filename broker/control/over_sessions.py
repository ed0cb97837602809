"""Doing something in ZooKeeper that a lost session must not make a failure: with the next one, once more.

Owns the rule for what clients ask of the cluster (topics, settings): an attempt may have worked although its
answer was lost, so whatever is tried again has to recognise its own work. When time is up, the outcome is not
known and the client is told so with an error that it may try again (REQUEST_TIMED_OUT), never by closing its
connection. Must not know what is attempted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import SessionExpired
from protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

_log = logging.getLogger("isthmus.broker")
_PAUSE_S = 0.05


async def over_sessions(
    zookeeper: ZooKeeper, attempt: Callable[[], Awaitable[T]], wait_s: float | None, what: str
) -> T:
    """The result of `attempt`. Raises KafkaError: what it raises, or REQUEST_TIMED_OUT after `wait_s` (None:
    never)."""
    try:
        async with asyncio.timeout(wait_s):
            while True:
                try:
                    return await attempt()
                except SessionExpired:
                    _log.warning("%s: the ZooKeeper session was lost, once more with the next one", what)
                    await asyncio.sleep(_PAUSE_S)
                    await zookeeper.wait_connected()
    except TimeoutError:
        text = f"{what}: ZooKeeper did not answer within {wait_s or 0:g} s; it may be done all the same"
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text) from None
