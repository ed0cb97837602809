"""What the controller reads and writes in ZooKeeper. Every write is fenced by the controller's epoch.

A write checks, in the same transaction, that /controller_epoch still has the version of this reign; when it
has not, ControllerMoved ends the reign (I3). Must not decide anything.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from broker.clock import Clock
from broker.control import log_dir_events, paths
from broker.control.controller_core import StateWrite
from broker.control.last_replica import PreviousEnd
from broker.control.nodes import (
    BrokerNode,
    NodeFormatError,
    PartitionState,
    TopicNode,
    decode_controller,
    decode_epoch,
    encode_controller,
    encode_epoch,
)
from broker.control.orders import LiveBroker, StoredState
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
)
from protocol.types import TopicPartition

_log = logging.getLogger("isthmus.broker")
_BATCH = 100
_READS_AT_ONCE = 200

_T = TypeVar("_T")


class ControllerMoved(Exception):
    """Another broker has become the controller."""


class Reign(NamedTuple):
    """A won election: the epoch, and the version of /controller_epoch that fences it."""

    epoch: int
    version: int


class ControllerStore:
    """Reads are for whoever is the controller; writes need a `Reign`."""

    def __init__(self, zookeeper: ZooKeeper, broker_id: int, clock: Clock) -> None:
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._clock = clock

    # -- election

    async def elect(self, watch: Callable[[], None]) -> Reign | None:
        """Become the controller, or None when there is one. `watch` fires when that changes."""
        while True:
            if await self._zookeeper.exists(paths.CONTROLLER, watch):
                return await self._own_reign()
            epoch, version = await self._epoch()
            claim = encode_controller(self._broker_id, self._clock.now_ms())
            try:
                await self._zookeeper.transaction(
                    [
                        Create(paths.CONTROLLER, claim, ephemeral=True),
                        Set(paths.CONTROLLER_EPOCH, encode_epoch(epoch + 1), version),
                    ]
                )
            except (NodeExists, BadVersion):
                continue  # another broker was first
            return Reign(epoch + 1, version + 1)

    async def _own_reign(self) -> Reign | None:
        """Our reign, if the standing claim is this very session's: the answer to it was lost."""
        node = await self._zookeeper.get(paths.CONTROLLER)
        if node is None or node.owner != self._zookeeper.session_id:
            return None
        return Reign(*await self._epoch())

    async def _epoch(self) -> tuple[int, int]:
        while True:
            node = await self._zookeeper.get(paths.CONTROLLER_EPOCH)
            if node is not None:
                return decode_epoch(node.data), node.version
            try:
                await self._zookeeper.create(paths.CONTROLLER_EPOCH, encode_epoch(0))
            except NodeExists:
                continue

    async def controller_id(self) -> int:
        """Broker id of the controller, -1 without one."""
        node = await self._zookeeper.get(paths.CONTROLLER)
        return -1 if node is None else decode_controller(node.data)

    async def resign(self) -> None:
        """Give up a claim of this session, so that another broker takes over at once."""
        node = await self._zookeeper.get(paths.CONTROLLER)
        if node is not None and node.owner == self._zookeeper.session_id:
            try:
                await self._zookeeper.delete(paths.CONTROLLER)
            except NoNode:
                return

    # -- reading

    async def brokers(self, watch: Callable[[], None]) -> dict[int, LiveBroker]:
        names = await self._zookeeper.children(paths.BROKER_IDS, watch)
        found = await asyncio.gather(*(self._broker(int(name)) for name in names if name.isdigit()))
        return {broker.broker_id: broker for broker in found if broker is not None}

    async def _broker(self, broker_id: int) -> LiveBroker | None:
        node = await self._zookeeper.get(paths.broker(broker_id))
        if node is None:
            return None
        try:
            described = BrokerNode.decode(node.data)
        except NodeFormatError as error:
            _log.error("broker %d is ignored, its registration cannot be read: %s", broker_id, error)
            return None
        end = PreviousEnd.of(described.previous_end)
        return LiveBroker(broker_id, node.created, described.endpoints, described.rack, end)

    async def topic_names(self, watch: Callable[[], None]) -> set[str]:
        return set(await self._zookeeper.children(paths.TOPICS, watch))

    async def topics(
        self, names: Collection[str], watch: Callable[[str], Callable[[], None]]
    ) -> dict[str, TopicNode]:
        """Topics by name; `watch(name)` gives the watch for one. Unreadable ones are left out and logged."""
        found: dict[str, TopicNode] = {}

        async def read(name: str) -> None:
            node = await self._zookeeper.get(paths.topic(name), watch(name))
            if node is None:
                return
            try:
                found[name] = TopicNode.decode(node.data)
            except NodeFormatError as error:
                _log.error("topic %s is ignored, its node cannot be read: %s", name, error)

        for batch in _batches(sorted(names), _READS_AT_ONCE):
            await asyncio.gather(*(read(name) for name in batch))
        return found

    async def states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, StoredState]:
        """States of those partitions that have one."""
        return (await self.dated_states(partitions))[0]

    async def dated_states(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, StoredState], dict[TopicPartition, int]]:
        """The same, and the zxid with which each was written: what has a larger one came later."""
        found: dict[TopicPartition, StoredState] = {}
        zxids: dict[TopicPartition, int] = {}
        wanted = list(partitions)
        nodes = await self._zookeeper.get_many([paths.partition_state(*partition) for partition in wanted])
        for partition, node in zip(wanted, nodes, strict=True):
            if node is None:
                continue
            try:
                found[partition] = StoredState(PartitionState.decode(node.data), node.version)
                zxids[partition] = node.modified
            except NodeFormatError as error:
                _log.error("%s is ignored, its state cannot be read: %s", partition, error)
        return found, zxids

    async def states_of_new(self, topics: Mapping[str, TopicNode]) -> dict[TopicPartition, StoredState]:
        """States of topics that are new here, and mostly have none: asks for those that exist."""

        async def existing(name: str, node: TopicNode) -> list[TopicPartition]:
            indexes = await self._zookeeper.children(paths.partitions(name))
            return [TopicPartition(name, index) for index in map(int, indexes) if index in node.assignment]

        found = await asyncio.gather(*(existing(name, node) for name, node in topics.items()))
        return await self.states([partition for part in found for partition in part])

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

    # -- writing

    async def drop(self, reign: Reign, nodes: Iterable[str]) -> None:
        """Remove notifications that were dealt with."""
        for path in nodes:
            with contextlib.suppress(NoNode):
                await self._fenced(reign, [Delete(path)])

    async def write(
        self, reign: Reign, writes: Sequence[StateWrite]
    ) -> tuple[list[tuple[TopicPartition, PartitionState, int]], list[TopicPartition]]:
        """Write partition states; returns what was written, and the partitions somebody else wrote.

        Raises ControllerMoved, SessionExpired.
        """
        done: list[tuple[TopicPartition, PartitionState, int]] = []
        refused: list[TopicPartition] = []
        await self._make_parents({item.partition.topic for item in writes if item.version is None})
        for batch in _batches(writes, _BATCH):
            try:
                done += await self._write_batch(reign, batch)
            except (BadVersion, NodeExists, NoNode):
                for item in batch:  # one of them is in the way: the others are written without it
                    try:
                        done += await self._write_batch(reign, [item])
                    except (BadVersion, NodeExists, NoNode) as error:
                        _log.info("state of %s was written by somebody else: %s", item.partition, error)
                        refused.append(item.partition)
        return done, refused

    async def _write_batch(
        self, reign: Reign, batch: Sequence[StateWrite]
    ) -> list[tuple[TopicPartition, PartitionState, int]]:
        operations: list[Operation] = []
        for partition, state, version in batch:
            path = paths.partition_state(*partition)
            if version is None:
                operations.append(Create(paths.partition(*partition)))
                operations.append(Create(path, state.encode()))
            else:
                operations.append(Set(path, state.encode(), version))
        await self._fenced(reign, operations)
        return [
            (partition, state, 0 if version is None else version + 1) for partition, state, version in batch
        ]

    async def _make_parents(self, topics: Iterable[str]) -> None:
        for name in topics:
            try:
                await self._zookeeper.create(paths.partitions(name))
            except (NodeExists, NoNode):
                continue  # there, or the topic is gone, which the write will find

    async def edit_topic(self, reign: Reign, name: str, edit: Callable[[TopicNode], TopicNode]) -> None:
        """Change a topic's node, whoever else changes it meanwhile; nothing if it is gone."""
        while True:
            node = await self._zookeeper.get(paths.topic(name))
            if node is None:
                return
            before = TopicNode.decode(node.data)
            after = edit(before)
            if after == before:
                return
            try:
                await self._fenced(reign, [Set(paths.topic(name), after.encode(), node.version)])
            except (BadVersion, NoNode):
                continue
            return

    async def remove_topic(self, reign: Reign, name: str) -> None:
        """Remove a topic's nodes, its settings and the request to delete it, all at once."""
        deletes = await self._usual_deletes(name)
        while True:
            try:
                await self._fenced(reign, deletes)
            except (NoNode, NotEmpty):  # not as usual, or something changed in between: look at all of it
                trees = (paths.topic(name), paths.topic_config(name), paths.delete_topic(name))
                deletes = [item for path in trees for item in await self._deletes(path)]
                continue
            return

    async def _usual_deletes(self, name: str) -> list[Delete]:
        """What to delete for a topic whose partitions all have a state; needs one look, not thousands."""
        deletes = []
        for index in await self._zookeeper.children(paths.partitions(name)):
            deletes.append(Delete(f"{paths.partitions(name)}/{index}/state"))
            deletes.append(Delete(f"{paths.partitions(name)}/{index}"))
        nodes = (
            paths.partitions(name),
            paths.topic(name),
            paths.topic_config(name),
            paths.delete_topic(name),
        )
        return [*deletes, *(Delete(path) for path in nodes)]

    async def _deletes(self, path: str) -> list[Delete]:
        """What to delete for a whole tree, children first."""
        if not await self._zookeeper.exists(path):
            return []
        names = await self._zookeeper.children(path)
        below = await asyncio.gather(*(self._deletes(f"{path}/{name}") for name in names))
        return [*(item for part in below for item in part), Delete(path)]

    async def drop_deletion(self, reign: Reign, name: str) -> None:
        """Remove the request to delete a topic, if that topic does not exist."""
        if await self._zookeeper.exists(paths.topic(name)):
            return
        with contextlib.suppress(NoNode):
            await self._fenced(reign, [Delete(paths.delete_topic(name))])

    async def _fenced(self, reign: Reign, operations: Sequence[Operation]) -> None:
        try:
            await self._zookeeper.transaction([Check(paths.CONTROLLER_EPOCH, reign.version), *operations])
        except (BadVersion, NoNode) as error:
            if error.path == paths.CONTROLLER_EPOCH:
                raise ControllerMoved(f"epoch {reign.epoch} of broker {self._broker_id} is over") from None
            raise


def _batches(items: Sequence[_T], size: int) -> Iterable[Sequence[_T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
