"""Asks all living replicas of some partitions where their logs end, before an unclean election.

With that the longest log is elected, not the first in the assignment. Who does not answer in time is left
out: the election is a person's word and is not held up by what is broken.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from protocol.client import Connection
from protocol.client.log_ends import LogEnd, log_ends
from protocol.errors import KafkaError, ProtocolError
from protocol.types import TopicPartition

if TYPE_CHECKING:
    from broker.server.app import Broker

_log = logging.getLogger("isthmus.broker")
_TIMEOUT_S = 3.0


async def replica_ends(
    broker: Broker, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, dict[int, LogEnd]]:
    """By partition and broker."""
    held: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition in partitions:
        known = broker.metadata.partition(*partition)
        for number in () if known is None else known.replicas:
            if number in broker.metadata.brokers:
                held[number].append(partition)
    found: dict[TopicPartition, dict[int, LogEnd]] = defaultdict(dict)

    async def ask(number: int) -> None:
        for partition, end in (await _ends_at(broker, number, held[number])).items():
            found[partition][number] = end

    await asyncio.gather(*map(ask, held))
    return found


async def _ends_at(
    broker: Broker, number: int, partitions: list[TopicPartition]
) -> dict[TopicPartition, LogEnd]:
    if number == broker.replicas.broker_id:
        return _own(broker, partitions)
    address = broker.metadata.endpoint(number, broker.config.inter_broker_listener)
    if address is None:
        return {}
    security = broker.metadata.peer_security
    try:
        connection = await Connection.open(
            address.host,
            address.port,
            client_id=f"broker-{broker.replicas.broker_id}-election",
            ssl=security.ssl,
            sasl=security.sasl,
            timeout_s=_TIMEOUT_S,
            connect_timeout_s=_TIMEOUT_S,
        )
        try:
            return await log_ends(connection.send, partitions)
        finally:
            await connection.close()
    except (ProtocolError, OSError, TimeoutError) as error:
        _log.warning("broker %d does not say where its logs end: %s", number, error)
        return {}


def _own(broker: Broker, partitions: list[TopicPartition]) -> dict[TopicPartition, LogEnd]:
    ends = {}
    for partition in partitions:
        try:
            log = broker.replicas.hosted(*partition).log
        except KafkaError:
            continue
        ends[partition] = LogEnd(log.epochs.latest, log.end_offset)
    return ends
