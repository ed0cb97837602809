"""Kafka Connect's topic of states at the target: whether a connector still runs, whatever else workers do.

Owns its keys and values (KafkaStatusBackingStore, as JSON without schemas). A connector that is stopped or
paused copies nothing, nor does one that is gone, once none of its tasks runs.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Final

from protocol.client import ClusterClient
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from replicator.mirrormaker.reading import committed
from replicator.settings import TakeOver

_AT_REST: Final = ("STOPPED", "PAUSED", "DESTROYED")
_TASK_ENDED: Final = (*_AT_REST, "UNASSIGNED", "FAILED")
"""A task without a worker, and one that failed, copies nothing while its connector is at rest."""


async def not_at_rest(target: ClusterClient, told: TakeOver) -> str | None:
    """Why the connector, or a task of it, may still copy; None: it does not. Empty where no topic is told.

    Raises ProtocolError when the target cannot be asked now.
    """
    topic = told.status_topic
    if not topic:
        return ""
    there = (await target.metadata([topic])).topics.get(topic)
    if there is None or there.error:
        return f"{topic} is not there" if there is None else f"{topic}: {there.error.name}"
    states: dict[str, str] = {}

    async def read(number: int) -> None:
        async for _, rows in committed(target, TopicPartition(told.status_topic, number), 0):
            for row in rows:
                states[(row.key or b"").decode(errors="replace")] = _state(row.value)

    try:
        await asyncio.gather(*map(read, there.partitions))  # all rows of a key are in one partition
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return f"{topic} may not be read"
        raise
    if not any(key.startswith(("status-connector-", "status-task-")) for key in states):
        return f"{topic} holds no states of connectors"
    task = re.compile(rf"status-task-{re.escape(told.connector)}-\d+")
    connector = states.get(f"status-connector-{told.connector}", "DESTROYED")
    if connector not in _AT_REST:
        return f"{told.connector} is {connector} by {topic}"
    tasks = [state for key, state in states.items() if task.fullmatch(key) and state not in _TASK_ENDED]
    return f"{told.connector} has a task that is {tasks[0]} by {topic}" if tasks else None


def _state(value: bytes | None) -> str:
    """A row that is deleted is of something that was destroyed; one that cannot be read may be running."""
    if value is None:
        return "DESTROYED"
    try:
        return str(json.loads(value)["state"])
    except (KeyError, TypeError, ValueError):
        return "?"
