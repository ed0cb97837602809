"""A producer whose records are not acknowledged: after some seconds one line says so, and why if it shows.

librdkafka tries what a broker refuses with a retriable error again and tells nobody, for as long as
`message.timeout.ms`. The reason is looked up where it shows: leaders, replicas in sync, min.insync.replicas.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, PartitionMetadata, ResourceType

from protocol.counted import counted

FIRST_S = 5.0
AGAIN_S = 30.0
_ASK_S = 3.0


class Silence:
    """`heard` at each acknowledgement, `look` often; `say` gets the line. `now` is monotonic seconds."""

    def __init__(
        self, say: Callable[[str], None], why: Callable[[], str], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._why = why
        self._now = now
        self._since = now()
        self._next = FIRST_S

    def heard(self) -> None:
        self._since = self._now()
        self._next = FIRST_S

    def look(self, waiting: int) -> None:
        """`waiting`: records that are not acknowledged yet."""
        if not waiting:
            self.heard()
            return
        silent = self._now() - self._since
        if silent >= self._next:
            self._next = silent + AGAIN_S
            records = counted(waiting, "record")
            self._say(f"no acknowledgement for {silent:.0f} s, {records} waiting, still trying{self._why()}")


def reason(admin: AdminClient, topic: str) -> str:
    """`: …` where the cluster shows why writes to a topic with acks=all cannot pass, else empty."""
    try:
        found = admin.list_topics(topic, timeout=_ASK_S).topics[topic].partitions
        settings = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
        [future] = settings.values()
        needed = int(future.result(_ASK_S)["min.insync.replicas"].value or "1")
    except (KafkaException, KeyError, TimeoutError):
        return ": the cluster does not say why within some seconds"
    blocked = [(number, why) for number, each in sorted(found.items()) if (why := _blocked(each, needed))]
    if not blocked:
        return ""
    number, why = blocked[0]
    more = f" (and {len(blocked) - 1} more partitions)" if len(blocked) > 1 else ""
    return f": {topic}-{number} {why}{more}"


def _blocked(partition: PartitionMetadata, needed: int) -> str:
    if partition.leader < 0:
        return "has no leader (isthmus elect shows why)"
    in_sync = len(partition.isrs)
    if in_sync < needed:
        return f"has {in_sync} in sync, min.insync.replicas is {needed} (NOT_ENOUGH_REPLICAS)"
    return ""
