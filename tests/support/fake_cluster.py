"""Several scripted brokers that agree on who leads what, to test routing and retries of clients.

Metadata and FindCoordinator are answered from `FakeCluster`'s attributes, everything else by handlers that a
test registers: `cluster.on(ApiKey.PRODUCE, handler)` with `handler(node_id, request) -> response | None`
(None: the connection is closed without an answer). Every request is noted in `cluster.seen`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from protocol.api import APIS, ApiKey
from protocol.client import RetryPolicy
from protocol.codec.schema import Response
from protocol.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.support.fake_broker import FakeBroker, Peer, Received

FAST = RetryPolicy(total_s=10, unknown_topic_s=0.3, first_wait_s=0.005, longest_wait_s=0.05)

Handler = Callable[[int, Any], Response | Awaitable[Response | None] | None]


class Seen(NamedTuple):
    node: int
    api_key: int
    version: int
    body: Any


class FakeCluster:
    def __init__(self, brokers: int = 3) -> None:
        self.cluster_id = "fake"
        self.controller = 1
        self.coordinator = 1
        self.leaders: dict[str, dict[int, tuple[int, int]]] = {}
        """topic -> partition -> (leader, leader epoch)"""
        self.topic_ids: dict[str, bytes] = {}
        self.highest: dict[int, int] = {}
        """Caps of the advertised versions."""
        self.seen: list[Seen] = []
        self._handlers: dict[int, Handler] = {
            ApiKey.METADATA: self.metadata,
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda _, request: nothing_lost(request),
        }
        self.brokers = {node: FakeBroker(self._script(node)) for node in range(1, brokers + 1)}

    async def __aenter__(self) -> Self:
        for broker in self.brokers.values():
            await broker.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            await broker.stop()
        failures = [failure for broker in self.brokers.values() for failure in broker.failures]
        if error is None and failures:
            raise failures[0]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def topic(self, name: str, leaders: list[int], epoch: int = 0, topic_id: bytes = bytes(16)) -> None:
        self.leaders[name] = {index: (leader, epoch) for index, leader in enumerate(leaders)}
        self.topic_ids[name] = topic_id

    def on(self, key: int, handler: Handler) -> None:
        self._handlers[key] = handler

    def requests(self, key: int) -> list[Seen]:
        return [seen for seen in self.seen if seen.api_key == key]

    def _script(self, node: int) -> Callable[[Peer], Awaitable[None]]:
        async def script(peer: Peer) -> None:
            for key, highest in self.highest.items():
                peer.versions[key] = (APIS[key].min, highest)
            while True:
                request = await peer.request()
                self.seen.append(Seen(node, request.api_key, request.version, request.body))
                answer = await self._answer(node, request)
                if answer is None:
                    return
                await peer.answer(request, answer)

        return script

    async def _answer(self, node: int, request: Received) -> Response | None:
        handler = self._handlers[request.api_key]
        answer = handler(node, request.body)
        return await answer if asyncio.iscoroutine(answer) else answer  # type: ignore[return-value]

    def metadata(self, node: int, request: Any) -> MetadataResponse:
        names = list(self.leaders) if request.topics is None else [topic.name for topic in request.topics]
        return MetadataResponse(
            cluster_id=self.cluster_id,
            controller_id=self.controller,
            brokers=[
                MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=broker.port)
                for node_id, broker in self.brokers.items()
            ],
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.leaders:
            return MetadataResponseTopic(name=name, error_code=3)
        partitions = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=[1],
                isr_nodes=[1],
                error_code=5 if leader < 0 else 0,
            )
            for index, (leader, epoch) in self.leaders[name].items()
        ]
        return MetadataResponseTopic(name=name, topic_id=self.topic_ids[name], partitions=partitions)

    def find_coordinator(self, node: int, request: Any) -> FindCoordinatorResponse:
        where = {
            "node_id": self.coordinator,
            "host": "127.0.0.1",
            "port": self.brokers[self.coordinator].port,
        }
        if request.coordinator_keys:
            return FindCoordinatorResponse(
                coordinators=[Coordinator(key=key, **where) for key in request.coordinator_keys]
            )
        return FindCoordinatorResponse(**where)


def nothing_lost(request: Any) -> OffsetForLeaderEpochResponse:
    """Answers OffsetForLeaderEpoch as a leader that has all of the epoch asked for."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=row.partition, leader_epoch=row.leader_epoch, end_offset=1 << 62)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def listed(
    request: Any, code_of: Callable[[str, int], int] = lambda topic, partition: 0
) -> ListOffsetsResponse:
    """Answers ListOffsets with 100 + partition, or with an error code per partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=row.partition_index,
                        error_code=code_of(topic.name, row.partition_index),
                        offset=100 + row.partition_index,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
