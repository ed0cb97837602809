"""What an unclean election would cost: who holds how much of a partition that has no leader.

Replicas are asked one by one, as each is the only one who knows. What is shown is what is known: replicas
that do not answer may hold more, and nobody can say what a lost page cache held.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import ClusterMetadata

from protocol.client import Connection
from protocol.client.log_ends import LogEnd, log_ends
from protocol.errors import ProtocolError
from protocol.types import TopicPartition

_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Risk:
    """One partition without a leader."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    ends: Mapping[int, LogEnd]
    """Of replicas that answered."""

    @property
    def silent(self) -> tuple[int, ...]:
        return tuple(each for each in self.replicas if each not in self.ends)

    @property
    def choice(self) -> int | None:
        """Whom the controller will elect: the longest log, then who was in sync, then the assignment."""
        if not self.ends:
            return None
        longest = max(self.ends.values())
        able = [each for each in self.replicas if self.ends.get(each) == longest]
        return next((each for each in able if each in self.isr), able[0])

    @property
    def words(self) -> str:
        choice = self.choice
        if choice is None:
            return "no replica answers: nobody can be elected"
        told = [f"broker {choice} leads from {self.ends[choice].offset} on"]
        if choice in self.isr:
            told.append(
                "it was in sync, but its last run did not end cleanly: what it had not on disk is gone"
            )
        else:
            told.append(
                f"it was not in sync: what broker {_listed(self.isr)} acknowledged beyond that is lost"
            )
        away = [each for each in self.silent if each in self.isr] or list(self.silent)
        if away:
            told.append(f"broker {_listed(away)} does not answer: what it holds beyond that is lost")
        return "; ".join(told)

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "replicas": list(self.replicas),
            "isr": list(self.isr),
            "ends": {str(each): end._asdict() for each, end in sorted(self.ends.items())},
            "silent": list(self.silent),
            "would_lead": self.choice,
            "risk": self.words,
        }


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def look(metadata: ClusterMetadata, only: Mapping[str, set[int]] | None) -> list[Risk]:
    """All partitions without a leader, or those of `only` (topic to partitions; an empty set means all)."""
    leaderless = [
        (TopicPartition(name, index), tuple(found.replicas), tuple(found.isrs))
        for name, topic in sorted(metadata.topics.items())
        for index, found in sorted(topic.partitions.items())
        if found.leader < 0 and (only is None or (name in only and (not only[name] or index in only[name])))
    ]
    held: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition, replicas, _ in leaderless:
        for number in replicas:
            if number in metadata.brokers:
                held[number].append(partition)
    ends = asyncio.run(_ask_all(metadata, held))
    return [
        Risk(partition, replicas, isr, ends.get(partition, {})) for partition, replicas, isr in leaderless
    ]


async def _ask_all(
    metadata: ClusterMetadata, held: Mapping[int, list[TopicPartition]]
) -> dict[TopicPartition, dict[int, LogEnd]]:
    found: dict[TopicPartition, dict[int, LogEnd]] = defaultdict(dict)

    async def ask(number: int) -> None:
        broker = metadata.brokers[number]
        try:
            connection = await Connection.open(
                str(broker.host),
                broker.port,
                client_id="isthmus-cli",
                timeout_s=_TIMEOUT_S,
                connect_timeout_s=_TIMEOUT_S,
            )
            try:
                for partition, end in (await log_ends(connection.send, held[number])).items():
                    found[partition][number] = end
            finally:
                await connection.close()
        except (ProtocolError, OSError, TimeoutError):
            return  # shown as one that does not answer

    await asyncio.gather(*map(ask, held))
    return found
