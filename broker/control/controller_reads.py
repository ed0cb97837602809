"""What the controller reads in ZooKeeper: brokers, topics, partition states, what is asked of it.

Nodes that cannot be read are told apart from those that are not there (`unreadable`): only the latter are
gone. Must not decide or write anything. (Kafka: `KafkaZkClient`'s reading half.)
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from broker.control import log_dir_events, paths, unreadable
from broker.control.last_replica import PreviousEnd
from broker.control.nodes import BrokerNode, NodeFormatError, PartitionState, TopicNode
from broker.control.orders import LiveBroker, StoredState
from broker.control.zookeeper import ZooKeeper
from protocol.types import TopicPartition

_log = logging.getLogger("isthmus.broker")
_AT_ONCE = 200

_T = TypeVar("_T")


class TopicsRead(NamedTuple):
    """Topics by name, and the names of those whose node cannot be read. Others do not exist."""

    found: dict[str, TopicNode]
    unreadable: set[str]


class StatesRead(NamedTuple):
    """States, the zxid with which each was written (a larger one came later), and what cannot be read."""

    states: dict[TopicPartition, StoredState]
    zxids: dict[TopicPartition, int]
    unreadable: set[TopicPartition]


class ControllerReads:
    """For whoever is the controller."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._root = zookeeper.address.partition("/")[2]

    async def brokers(self, watch: Callable[[], None]) -> dict[int, LiveBroker]:
        names = await self._zookeeper.children(paths.BROKER_IDS, watch)
        found = await asyncio.gather(*(self._broker(int(name)) for name in names if name.isdecimal()))
        return {broker.broker_id: broker for broker in found if broker is not None}

    async def _broker(self, broker_id: int) -> LiveBroker | None:
        node = await self._zookeeper.get(paths.broker(broker_id))
        if node is None:
            return None
        try:
            described = BrokerNode.decode(node.data)
        except NodeFormatError as error:
            path = self._shown(paths.broker(broker_id))
            _log.error("broker %d is ignored, %s cannot be read in ZooKeeper: %s", broker_id, path, error)
            return None
        end = PreviousEnd.of(described.previous_end)
        return LiveBroker(broker_id, node.created, described.endpoints, described.rack, end)

    async def topic_names(self, watch: Callable[[], None]) -> set[str]:
        return set(await self._zookeeper.children(paths.TOPICS, watch))

    async def topics(self, names: Collection[str], watch: Callable[[str], Callable[[], None]]) -> TopicsRead:
        """`watch(name)` gives the watch for one, which is set whatever the node holds."""
        read = TopicsRead({}, set())
        reasons: dict[str, str] = {}

        async def one(name: str) -> None:
            node = await self._zookeeper.get(paths.topic(name), watch(name))
            if node is None:
                return
            try:
                read.found[name] = TopicNode.decode(node.data)
            except NodeFormatError as error:
                read.unreadable.add(name)
                reasons[self._shown(paths.topic(name))] = str(error)

        for batch in batches(sorted(names), _AT_ONCE):
            await asyncio.gather(*(one(name) for name in batch))
        if reasons:
            _log.error("controller: %s", unreadable.topics_text(reasons))
        return read

    async def states(self, partitions: Iterable[TopicPartition]) -> StatesRead:
        """States of those partitions that have one."""
        read = StatesRead({}, {}, set())
        reasons: dict[str, str] = {}
        wanted = list(partitions)
        nodes = await self._zookeeper.get_many([paths.partition_state(*partition) for partition in wanted])
        for partition, node in zip(wanted, nodes, strict=True):
            if node is None:
                continue
            try:
                read.states[partition] = StoredState(PartitionState.decode(node.data), node.version)
                read.zxids[partition] = node.modified
            except NodeFormatError as error:
                read.unreadable.add(partition)
                reasons[self._shown(paths.partition_state(*partition))] = str(error)
        if reasons:
            _log.error("controller: %s", unreadable.states_text(reasons))
        return read

    async def states_of_new(self, topics: Mapping[str, TopicNode]) -> StatesRead:
        """States of topics that are new here, and mostly have none: asks for those that exist."""

        async def existing(name: str, node: TopicNode) -> list[TopicPartition]:
            children = await self._zookeeper.children(paths.partitions(name))
            indexes = (int(each) for each in children if each.isdecimal())
            return [TopicPartition(name, index) for index in indexes if index in node.assignment]

        found: list[TopicPartition] = []
        for batch in batches(list(topics.items()), _AT_ONCE):
            for part in await asyncio.gather(*(existing(name, node) for name, node in batch)):
                found += part
        return await self.states(found)

    async def watch_state(self, partition: TopicPartition, watch: Callable[[], None]) -> bool:
        """Have `watch` called when the state changes; whether it has changed already to what can be read."""
        node = await self._zookeeper.get(paths.partition_state(*partition), watch)
        try:
            return node is None or PartitionState.decode(node.data).leader_epoch >= 0
        except NodeFormatError:
            return False

    async def deletions(self, watch: Callable[[], None]) -> list[str]:
        return sorted(await self._zookeeper.children(paths.DELETE_TOPICS, watch))

    async def log_dir_events(self, watch: Callable[[], None]) -> dict[str, int]:
        """Brokers that say that a log directory failed, by the path of what they say."""
        names = await self._zookeeper.children(log_dir_events.PATH, watch)
        found: dict[str, int] = {}
        for path in (f"{log_dir_events.PATH}/{name}" for name in sorted(names)):
            node = await self._zookeeper.get(path)
            try:
                broker_id = None if node is None else log_dir_events.decode(node.data)
            except NodeFormatError as error:
                _log.warning("%s is ignored: %s", path, error)
                broker_id = None
            found[path] = -1 if broker_id is None else broker_id
        return found

    def _shown(self, path: str) -> str:
        """With the chroot, as ZooKeeper's own tools name it."""
        return f"/{self._root}{path}" if self._root else path


def batches(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
