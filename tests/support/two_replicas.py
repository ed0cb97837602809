"""Two replicas without a controller: broker 1 is a lone broker that leads, broker 2 only a replica table with
its fetchers. What the controller would say, the test says to each of them when it wants to.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from broker.clock import SystemClock
from broker.log import Log, LogConfig, LogManager
from broker.replication import Partition, ReplicaManager
from broker.replication.fetchers import FetcherSettings, ReplicaFetchers
from broker.replication.replicas import Leader
from broker.server.app import Broker
from protocol.client import Connection
from protocol.messages.leader_and_isr_request import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tests.support.lone_broker import LoneTopics
from tests.support.served import batch
from tests.support.waiting import eventually

LEADER, FOLLOWER = 1, 2
BACKOFF_S = 0.1


class Two:
    """The leader hands out over a socket; `sent` are the names of the follower's requests."""

    def __init__(
        self,
        broker: Broker,
        topics: LoneTopics,
        port: int,
        directory: Path,
        backoff_s: float,
        partitions: int,
        max_wait_ms: int,
    ) -> None:
        self.broker = broker
        self.topics = topics
        self.host, self.port = "127.0.0.1", port
        self.sent: list[str] = []
        self.calls = self.connections = 0
        self.config = LogConfig()
        """Of the follower's logs."""
        self.logs = LogManager([directory], FOLLOWER, "lone-cluster", SystemClock())
        self.logs.load()
        self.replicas = ReplicaManager(
            FOLLOWER, self.logs, SystemClock(), topic_config=lambda topic: self.config
        )
        self.fetchers = ReplicaFetchers(
            FetcherSettings(
                broker_id=FOLLOWER,
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=1 << 20,
                response_max_bytes=10 << 20,
                backoff_s=backoff_s,
                timeout_s=30.0,
            ),
            self._connect,
            broker_epoch=lambda: -1,
        )
        self.replicas.fetchers = self.fetchers
        self.topic_id = topics.create("t", partitions)

    async def _connect(self, leader: Leader) -> Connection:
        self.calls += 1
        connection = await Connection.open(leader.host, leader.port)
        self.connections += 1
        send = connection.send

        async def counted(request: Any, *rest: Any, **options: Any) -> Any:
            self.sent.append(type(request).__name__)
            return await send(request, *rest, **options)

        connection.send = counted  # type: ignore[method-assign]
        return connection

    def say(
        self, to: ReplicaManager, leader_epoch: int, index: int = 0, *, isr: tuple[int, ...] = (LEADER,)
    ) -> None:
        state = LeaderAndIsrPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=LEADER,
            leader_epoch=leader_epoch,
            isr=list(isr),
            partition_epoch=leader_epoch,
            replicas=[LEADER, FOLLOWER],
        )
        topic = LeaderAndIsrTopicState(topic_name="t", topic_id=self.topic_id, partition_states=[state])
        where = LeaderAndIsrLiveLeader(broker_id=LEADER, host_name=self.host, port=self.port)
        answer = to.apply_leader_and_isr(
            LeaderAndIsrRequest(controller_epoch=1, topic_states=[topic], live_leaders=[where])
        )
        assert [each.error_code for every in answer.topics for each in every.partition_errors] == [0]

    def follow(self, leader_epoch: int = 1, index: int = 0) -> None:
        """The leader hears it first."""
        self.say(self.broker.replicas, leader_epoch, index)
        self.say(self.replicas, leader_epoch, index)

    def leader(self, index: int = 0) -> Partition:
        return self.broker.replicas.leader("t", index)

    def log(self, index: int = 0) -> Log:
        """The follower's."""
        hosted = self.replicas.get("t", index)
        assert hosted is not None
        return hosted.log

    def append(self, *values: bytes, index: int = 0) -> None:
        self.leader(index).append(memoryview(bytearray(batch(*values))))

    async def copied(self, index: int = 0) -> None:
        """The follower has what its leader has, and knows as much."""

        async def look() -> tuple[tuple[int, ...], tuple[int, ...]]:
            mine, its = self.log(index), self.leader(index).log
            return (
                (mine.start_offset, mine.end_offset, mine.high_watermark),
                (its.start_offset, its.end_offset, its.high_watermark),
            )

        await eventually(look, lambda found: found[0] == found[1])


MakeTwo = Callable[..., Awaitable[Two]]
