"""What the controller writes in ZooKeeper. Every write is fenced by the controller's epoch.

A write checks, in the same transaction, that /controller_epoch still has the version of this reign; when it
has not, ControllerMoved ends the reign (I3). Must not decide anything.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from broker.clock import Clock
from broker.control import paths
from broker.control.controller_core import StateWrite
from broker.control.controller_reads import ControllerReads, batches
from broker.control.nodes import (
    NodeFormatError,
    PartitionState,
    TopicNode,
    decode_controller,
    decode_epoch,
    encode_controller,
    encode_epoch,
)
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
    ZooKeeperError,
)
from protocol.types import TopicPartition

_log = logging.getLogger("isthmus.broker")
_BATCH = 250
"""Writes in one transaction: some 60 KB, and `jute.maxbuffer` is a megabyte."""
_AT_ONCE = 4
"""Transactions on their way together: the next ones are read while ZooKeeper's disk is waited for."""
_DELETES = 4000


class ControllerMoved(Exception):
    """Another broker has become the controller."""


class Reign(NamedTuple):
    """A won election: the epoch, and the version of /controller_epoch that fences it."""

    epoch: int
    version: int


class Written(NamedTuple):
    """What was written, with its version now, and the partitions that somebody else has written."""

    done: list[tuple[TopicPartition, PartitionState, int]]
    refused: list[TopicPartition]


class ControllerStore(ControllerReads):
    """Reads are for whoever is the controller; writes need a `Reign`."""

    def __init__(self, zookeeper: ZooKeeper, broker_id: int, clock: Clock) -> None:
        super().__init__(zookeeper)
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

    # -- writing

    async def drop(self, reign: Reign, nodes: Iterable[str]) -> None:
        """Remove notifications that were dealt with."""
        for path in nodes:
            with contextlib.suppress(NoNode):
                await self._fenced(reign, [Delete(path)])

    async def write(self, reign: Reign, writes: Sequence[StateWrite]) -> Written:
        """Write partition states. Raises ControllerMoved, SessionExpired."""
        written = Written([], [])
        await self._make_parents(sorted({item.partition.topic for item in writes if item.version is None}))
        for some in batches(list(batches(writes, _BATCH)), _AT_ONCE):
            ended = await asyncio.gather(
                *(self._write_batch(reign, batch) for batch in some), return_exceptions=True
            )
            for part in ended:  # in the order of the writes, whichever came first
                if isinstance(part, BaseException):
                    raise part
                written.done.extend(part.done)
                written.refused.extend(part.refused)
        return written

    async def _write_batch(self, reign: Reign, batch: Sequence[StateWrite]) -> Written:
        """One transaction; what is in its way is taken out, and the others are written without it."""
        written = Written([], [])
        left = {item.partition: item for item in batch}
        has_node: set[TopicPartition] = set()
        while left:
            try:
                await self._fenced(reign, _operations(left.values(), has_node))
            except (BadVersion, NodeExists, NoNode) as error:
                partition = _in_the_way(error, left)
                if isinstance(error, NodeExists) and error.path == paths.partition(*partition):
                    has_node.add(partition)  # without a state
                    continue
                _log.info("state of %s was written by somebody else: %s", partition, error)
                written.refused.append(partition)
                del left[partition]
                continue
            written.done.extend(
                (partition, state, 0 if version is None else version + 1)
                for partition, state, version in left.values()
            )
            break
        return written

    async def _make_parents(self, topics: Sequence[str]) -> None:
        async def make(name: str) -> None:
            with contextlib.suppress(NodeExists, NoNode):  # there; or the topic is gone: the write finds out
                await self._zookeeper.create(paths.partitions(name))

        for some in batches(topics, _BATCH):
            await asyncio.gather(*(make(name) for name in some))

    async def edit_topic(self, reign: Reign, name: str, edit: Callable[[TopicNode], TopicNode]) -> None:
        """Change a topic's node, whoever else changes it meanwhile; nothing if it is gone or unreadable."""
        while True:
            node = await self._zookeeper.get(paths.topic(name))
            if node is None:
                return
            try:
                before = TopicNode.decode(node.data)
            except NodeFormatError:
                return  # its watch has told, and its reader says what to do
            after = edit(before)
            if after == before:
                return
            try:
                await self._fenced(reign, [Set(paths.topic(name), after.encode(), node.version)])
            except (BadVersion, NoNode):
                continue
            return

    async def remove_topic(self, reign: Reign, name: str) -> None:
        """Remove a topic's nodes, its settings and the request to delete it.

        At once, or, with very many partitions, the request last: whoever reigns then goes on.
        """
        deletes = await self._usual_deletes(name)
        while True:
            try:
                for some in batches(deletes, _DELETES):
                    await self._fenced(reign, some)
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


def _operations(writes: Iterable[StateWrite], has_node: set[TopicPartition]) -> list[Operation]:
    operations: list[Operation] = []
    for partition, state, version in writes:
        path = paths.partition_state(*partition)
        if version is not None:
            operations.append(Set(path, state.encode(), version))
            continue
        if partition not in has_node:
            operations.append(Create(paths.partition(*partition)))
        operations.append(Create(path, state.encode()))
    return operations


def _in_the_way(error: ZooKeeperError, writes: Iterable[TopicPartition]) -> TopicPartition:
    """The partition whose operation failed."""
    for partition in writes:
        if error.path in (paths.partition_state(*partition), paths.partition(*partition)):
            return partition
    raise error
