"""A real broker in the test's own process, without ZooKeeper: real log, real sockets, real handlers.

What the controller would tell it, `LoneTopics` does: it gives topics ids, leads all partitions itself and
tells the replica table and the metadata cache by the same requests that a controller sends. For tests of
handlers; tests of control use real ZooKeeper (see `tests.support.broker`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from broker.clock import Clock, SystemClock
from broker.config import BrokerConfig, load
from broker.control.features import TRANSACTION_VERSION, Finalized
from broker.control.metadata_cache import MetadataCache
from broker.log import LogConfig, LogManager
from broker.server.app import Broker, assemble
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from protocol.messages.update_metadata_request import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from protocol.types import new_topic_id

BROKER_ID = 1
_DURING_DELETE = -2


class ProducerIdBlock(NamedTuple):
    first: int
    last: int


class NoChanges:
    """Stands where the config store announces changes: there are none."""

    def __init__(self, config: BrokerConfig) -> None:
        self.in_force = config

    def on_broker_change(self, callback: Callable[[], None]) -> None:
        pass

    def on_change(self, callback: Callable[[str], None]) -> None:
        pass


class LoneFeatures:
    """Stands where features are kept in ZooKeeper."""

    def __init__(self, transaction_version: int) -> None:
        self.finalized = Finalized({TRANSACTION_VERSION: transaction_version}, 0)

    async def brokers_without(self, feature: str, level: int) -> list[int]:
        return []

    async def change(self, edit: Callable[[Mapping[str, int]], Mapping[str, int]]) -> None:
        self.finalized = Finalized(dict(edit(self.finalized.levels)), self.finalized.epoch + 1)


class LoneTopics:
    """Does what `TopicAdmin` and a controller do together, for one broker."""

    def __init__(self, config: BrokerConfig, metadata: MetadataCache) -> None:
        self.configs = NoChanges(config)
        self.broker: Broker | None = None
        self.epoch = 1
        self._config = config
        self._metadata = metadata
        self._overrides: dict[str, Mapping[str, Any]] = {}

    def topic_config(self, topic: str) -> LogConfig:
        return LogConfig.from_settings(self._overrides.get(topic, {}))

    def announce_broker(self, port: int) -> None:
        listener = self._config.endpoints[0]
        self._metadata.update(self._metadata_request([], port, listener.name, listener.host))
        self._where = (port, listener.name, listener.host)

    def create(self, name: str, partitions: int = 1, leader: int = BROKER_ID, **overrides: Any) -> bytes:
        """Make a topic; overrides are topic settings with `_` for `.`. Returns its id."""
        self._overrides[name] = {key.replace("_", "."): value for key, value in overrides.items()}
        topic_id = new_topic_id()
        self.lead(name, topic_id, range(partitions), leader, leader_epoch=0)
        return topic_id

    def lead(
        self, name: str, topic_id: bytes, partitions: range, leader: int, leader_epoch: int, version: int = 0
    ) -> None:
        """Say who leads from now on, to the replica table and to the metadata cache."""
        assert self.broker is not None
        states = [
            LeaderAndIsrPartitionState(
                partition_index=index,
                controller_epoch=self.epoch,
                leader=leader,
                leader_epoch=leader_epoch,
                isr=[leader],
                partition_epoch=version,
                replicas=[leader],
            )
            for index in partitions
        ]
        answer = self.broker.replicas.apply_leader_and_isr(
            LeaderAndIsrRequest(
                controller_id=BROKER_ID,
                controller_epoch=self.epoch,
                topic_states=[
                    LeaderAndIsrTopicState(topic_name=name, topic_id=topic_id, partition_states=states)
                ],
            )
        )
        assert answer.error_code == 0, answer
        self._tell(name, topic_id, partitions, leader, leader_epoch)

    def delete(self, name: str) -> None:
        assert self.broker is not None
        topic = self._metadata.topics[name]
        partitions = range(len(topic.partitions))
        self.broker.replicas.stop_replicas(
            StopReplicaRequest(
                controller_id=BROKER_ID,
                controller_epoch=self.epoch,
                topic_states=[
                    StopReplicaTopicState(
                        topic_name=name,
                        partition_states=[
                            StopReplicaPartitionState(
                                partition_index=index, leader_epoch=_DURING_DELETE, delete_partition=True
                            )
                            for index in partitions
                        ],
                    )
                ],
            )
        )
        self._tell(name, topic.topic_id, partitions, _DURING_DELETE, 0)

    async def auto_create(self, name: str) -> None:
        if not all(char.isalnum() or char in "._-" for char in name) or not name:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"bad name {name!r}")
        if self._metadata.topic(name) is None:
            self.create(name, self._config.num_partitions)

    async def ensure_internal_topic(self, name: str) -> None:
        if self._metadata.topic(name) is None:
            self.create(name, 4, cleanup_policy="compact")

    def _tell(self, name: str, topic_id: bytes, partitions: range, leader: int, leader_epoch: int) -> None:
        states = [
            UpdateMetadataPartitionState(
                partition_index=index,
                leader=leader,
                leader_epoch=leader_epoch,
                isr=[leader],
                replicas=[leader],
            )
            for index in partitions
        ]
        topic = UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=states)
        self._metadata.update(self._metadata_request([topic], *self._where))

    def _metadata_request(
        self, topics: list[UpdateMetadataTopicState], port: int, listener: str, host: str
    ) -> UpdateMetadataRequest:
        endpoint = UpdateMetadataEndpoint(host=host, port=port, listener=listener)
        return UpdateMetadataRequest(
            controller_id=BROKER_ID,
            controller_epoch=self.epoch,
            topic_states=topics,
            live_brokers=[UpdateMetadataBroker(id=BROKER_ID, endpoints=[endpoint], rack="here")],
        )


@asynccontextmanager
async def lone_broker(
    directory: Path, clock: Clock | None = None, transaction_version: int = 0, **settings: str
) -> AsyncIterator[tuple[Broker, LoneTopics, int]]:
    """(broker, topics, port). Settings are Kafka's names with `_` for `.`."""
    config = load(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "zookeeper.connect": "nowhere:1",
            "broker.id": str(BROKER_ID),
            "log.dirs": str(directory),
        }
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    clock = clock or SystemClock()
    directory.mkdir(parents=True, exist_ok=True)
    logs = LogManager([directory], BROKER_ID, "lone-cluster", clock)
    metadata = MetadataCache("lone-cluster", BROKER_ID)
    topics = LoneTopics(config, metadata)
    logs.load(topics.topic_config)
    blocks = iter(range(0, 10**9, 1000))

    async def claim() -> ProducerIdBlock:
        first = next(blocks)
        return ProducerIdBlock(first, first + 999)

    broker = assemble(
        broker_id=BROKER_ID,
        config=config,
        clock=clock,
        logs=logs,
        metadata=metadata,
        topics=topics,  # type: ignore[arg-type]  # the same words, without ZooKeeper
        claim_producer_ids=claim,
        features=LoneFeatures(transaction_version),
    )
    topics.broker = broker
    ports = await broker.listen()
    port = next(iter(ports.values()))
    topics.announce_broker(port)
    try:
        yield broker, topics, port
    finally:
        await broker.stop()
