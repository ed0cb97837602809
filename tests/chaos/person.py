"""The operator: says the word that a cluster waits for, and nothing else.

A partition whose last in-sync replica was killed has no leader until a person asks for an unclean election
(KIP-966). That is safe here while nothing else is broken, for then every replica can be asked for its end.
Must not know why a partition has no leader.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

_LOOK_S = 10.0
_ITSELF_S = 6.0
"""So long the cluster has to help itself, with everybody there."""


class Person:
    def __init__(self, bootstrap: str, say: Callable[[str], None]) -> None:
        self._client = AdminClient(
            {"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 5000}
        )
        self._say = say
        self._looked_at = 0.0
        self.words = 0
        """Partitions that were elected so."""

    def is_needed(self) -> bool:
        """Whether some partition has no leader; looks only now and then."""
        if time.monotonic() - self._looked_at < _LOOK_S:
            return False
        self._looked_at = time.monotonic()
        return bool(self._leaderless())

    def _leaderless(self) -> list[TopicPartition]:
        try:
            topics = self._client.list_topics(timeout=5).topics
        except KafkaException:
            return []
        return [
            TopicPartition(name, number)
            for name, topic in topics.items()
            for number, partition in topic.partitions.items()
            if partition.leader < 0
        ]

    def help(self) -> None:
        """With every broker up and no fault: elect what stays without a leader."""
        end = time.monotonic() + _ITSELF_S
        while (leaderless := self._leaderless()) and time.monotonic() < end:
            time.sleep(0.5)
        if not leaderless:
            return
        self._say(f"unclean election of {', '.join(f'{each.topic}-{each.partition}' for each in leaderless)}")
        try:
            results = self._client.elect_leaders(ElectionType.UNCLEAN, leaderless).result(30)
        except (KafkaException, TimeoutError) as error:
            self._say(f"the election failed: {error}")
            return
        self.words += sum(error is None for error in results.values())
