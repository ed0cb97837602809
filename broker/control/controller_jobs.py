"""What brokers and clients ask of the reigning controller, and how it does it: one job after another.

Owns the queue of those who wait, and the jobs: handing over a stopping broker's partitions, elections, moving
replicas. A job decides by the core, writes by the store, and is refused with ControllerMoved when the reign
ends first; whoever asked may ask the next controller. Must not know requests or watches.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from broker.control import reassignment
from broker.control.controller_core import ControllerCore, StateWrite
from broker.control.controller_reads import batches
from broker.control.controller_store import ControllerMoved, ControllerStore, Reign
from broker.control.elections import Election, LogEnds
from broker.control.nodes import TopicNode
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition

T = TypeVar("T")

AT_ONCE = 250
"""Partitions that get another leader together: none waits for one as long as thousands of others take."""
_IN_STEP_S = 1.0
"""For how long, in all, a job waits for brokers that are slower than others."""

Results = dict[TopicPartition, KafkaError | None]
"""For each partition None, or why not."""


class Work(NamedTuple):
    """What a job works with, for as long as this reign lasts."""

    core: ControllerCore
    store: ControllerStore
    reign: Reign
    write: Callable[[Sequence[StateWrite]], Awaitable[None]]
    touch: Callable[[str], None]
    """The topic's node has changed: read it, and do what follows, before anything is sent."""
    send: Callable[[], Sequence[tuple[int, "asyncio.Future[Any]"]]]
    """Tell brokers of what is written already; their numbers and answers."""


Job = Callable[[Work], Awaitable[Any]]


class Jobs:
    def __init__(self) -> None:
        self._waiting: list[tuple[Job, asyncio.Future[Any]]] = []

    def add(self, job: Callable[[Work], Awaitable[T]]) -> "asyncio.Future[T]":
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, answer))
        return answer

    async def do_all(self, work: Work) -> None:
        """Raises what ends the reign; the job at hand and those behind it are refused then."""
        while self._waiting:
            job, answer = self._waiting[0]
            if answer.done():  # whoever asked is gone, or has asked the next controller
                self._waiting.pop(0)
                continue
            try:
                result = await job(work)
            except KafkaError as error:
                self._waiting.pop(0)
                if not answer.done():
                    answer.set_exception(error)
                continue
            self._waiting.pop(0)
            if not answer.done():
                answer.set_result(result)

    def refuse(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, []
        for _, answer in waiting:
            if not answer.done():
                answer.set_exception(ControllerMoved(reason))


class HandedOver(NamedTuple):
    """`left` are partitions that nobody can take over; `told` what brokers answer to the orders."""

    left: list[TopicPartition]
    told: "list[asyncio.Future[Any]]"


async def hand_over(work: Work, broker_id: int, broker_epoch: int = -1) -> HandedOver:
    """A broker, registered with this epoch, is about to stop. Raises KafkaError when it is gone already.

    A job may have waited until the broker was started anew: that one is not about to stop.
    """
    broker = work.core.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if 0 <= broker_epoch < broker.epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has registered anew")
    told = await _in_step(work, work.core.leave(broker_id), work.core.leaving - {broker_id})
    return HandedOver(work.core.led_by(broker_id), told)


async def _in_step(
    work: Work, writes: Sequence[StateWrite], passed_over: Collection[int]
) -> "list[asyncio.Future[Any]]":
    """Write and tell some hundred states at a time, the next when brokers have carried out those before: what
    they answer to the orders. Not waited for are brokers that may have closed their ports already
    (`passed_over`), and, for more than a moment, one that stands still.
    """
    told: list[asyncio.Future[Any]] = []
    patience_s, loop = _IN_STEP_S, asyncio.get_running_loop()
    for some in batches(writes, AT_ONCE):
        await work.write(some)
        waited_from = loop.time()
        unanswered = [answer for answer in told if not answer.done()]
        if unanswered and patience_s > 0:
            await asyncio.wait(unanswered, timeout=patience_s)
            patience_s -= loop.time() - waited_from
        told += [answer for number, answer in work.send() if number not in passed_over]
    return told


async def elect_leaders(
    work: Work,
    kind: Election,
    partitions: Collection[TopicPartition] | None,
    ends: Mapping[TopicPartition, LogEnds] = MappingProxyType({}),
) -> Results:
    """Elect leaders of these partitions, or of all where that is needed (None); `ends` as far as known."""
    core = work.core
    results: Results = {}
    writes = []
    for partition in list(core.states) if partitions is None else partitions:
        try:
            writes.append(core.elect(kind, partition, ends.get(partition)))
        except KafkaError as error:
            if partitions is not None or error.code != ErrorCode.ELECTION_NOT_NEEDED:
                results[partition] = error
        else:
            results[partition] = None
    await _in_step(work, writes, core.leaving)
    return results


async def move_leaders_home(work: Work, percentage: int) -> None:
    """`auto.leader.rebalance.enable`: elect preferred leaders where too many are missing."""
    await elect_leaders(work, Election.PREFERRED, work.core.to_move_home(percentage))


async def reassign(work: Work, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Results:
    """Begin to move partitions to other replicas; None cancels what is under way (KIP-455)."""
    results: Results = {}
    edits: dict[str, dict[int, Sequence[int] | None]] = {}
    for partition, target in targets.items():
        try:
            _check(work.core, partition, target)
        except KafkaError as error:
            results[partition] = error
        else:
            results[partition] = None
            edits.setdefault(partition.topic, {})[partition.partition] = target
    for topic, moves in edits.items():
        await work.store.edit_topic(work.reign, topic, partial(_moved, moves))
        work.touch(topic)
    return results


def _moved(moves: Mapping[int, Sequence[int] | None], node: TopicNode) -> TopicNode:
    for index, target in moves.items():
        if index in node.assignment:
            node = (
                reassignment.cancelled(node, index)
                if target is None
                else reassignment.begun(node, index, target)
            )
    return node


def _check(core: ControllerCore, partition: TopicPartition, target: Sequence[int] | None) -> None:
    node = core.topics.get(partition.topic)
    if node is None or partition.partition not in node.assignment or partition.topic in core.deleting:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
    if partition.topic in core.unread_topics or partition in core.unread:
        text = f"what ZooKeeper holds of {partition} cannot be read, the controller's log says more"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    if target is None:
        if not reassignment.is_moving(node, partition.partition):
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{partition} is not being reassigned")
        return
    if not target:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{partition} needs at least one replica")
    if len(set(target)) != len(target):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"a broker is named twice for {partition}")
    for number in target:
        if number not in core.brokers and number not in node.assignment[partition.partition]:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{partition}: broker {number} is not alive"
            )


async def finish_moves(work: Work) -> None:
    """Take the old replicas out where all new ones are in sync."""
    for topic, indexes in work.core.moves_to_finish().items():
        await work.store.edit_topic(work.reign, topic, partial(_finished, indexes))
        work.touch(topic)


def _finished(indexes: Sequence[int], node: TopicNode) -> TopicNode:
    for index in indexes:
        if index in node.assignment:
            node = reassignment.finished(node, index)
    return node
