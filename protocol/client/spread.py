"""One call for many partitions: split by leader, all brokers at once, again where a leader has moved."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from typing import Final, TypeVar

from protocol.client.errors import ClientError
from protocol.client.failures import each
from protocol.client.retry import RetryPolicy
from protocol.client.routing import Router
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import TopicPartition

T = TypeVar("T")
V = TypeVar("V")

LEADER_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""Answers after which the leader has to be looked up anew."""


class Isolation(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


Call = Callable[[int, dict[TopicPartition, T]], Awaitable[Mapping[TopicPartition, V | BaseException]]]
"""(broker, its partitions and what is wanted of each) -> result or error of each."""


class LeaderCalls(Router):
    """Part of `ClusterClient`."""

    async def spread(
        self, items: Mapping[TopicPartition, T], call: Call[T, V], policy: RetryPolicy
    ) -> dict[TopicPartition, V]:
        """Results of `call` for all partitions. Raises the first error that stayed."""

        async def once(left: dict[TopicPartition, T]) -> Mapping[TopicPartition, V | BaseException]:
            return await self.spread_once(left, call)

        return await each(items, once, policy)

    async def spread_once(
        self, items: Mapping[TopicPartition, T], call: Call[T, V]
    ) -> Mapping[TopicPartition, V | BaseException]:
        """As `spread`, each partition asked once; errors are results. Raises ProtocolError when leaders
        cannot be looked up."""
        await self.learn_leaders(items)
        results: dict[TopicPartition, V | BaseException] = {}
        parts: dict[int, dict[TopicPartition, T]] = {}
        for tp, item in items.items():
            try:
                parts.setdefault((await self.leader(tp)).node, {})[tp] = item
            except KafkaError as error:
                results[tp] = error
        for answers in await asyncio.gather(*(self._at(*part, call) for part in parts.items())):
            results.update(answers)
        for tp, result in results.items():
            if isinstance(result, KafkaError):
                self.moved(tp, result)
        return results

    async def _at(
        self, node: int, part: dict[TopicPartition, T], call: Call[T, V]
    ) -> Mapping[TopicPartition, V | BaseException]:
        try:
            return await call(node, part)
        except ProtocolError as error:
            if isinstance(error, ClientError):
                for tp in part:
                    self.forget_leader(tp)
            return dict.fromkeys(part, error)

    def moved(self, tp: TopicPartition, error: KafkaError) -> KafkaError:
        """The same error, after forgetting a leader that it proves wrong."""
        if error.code in LEADER_MOVED:
            self.forget_leader(tp)
        return error


def by_topic(items: Mapping[TopicPartition, V]) -> dict[str, list[tuple[TopicPartition, V]]]:
    """The same items as requests want them: grouped by topic."""
    topics: dict[str, list[tuple[TopicPartition, V]]] = {}
    for tp, item in items.items():
        topics.setdefault(tp.topic, []).append((tp, item))
    return topics
