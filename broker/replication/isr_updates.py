"""Proposals for other in-sync replicas on their way to the controller (KIP-497's AlterPartition).

Owns one request at a time for all partitions with a proposal: what comes up meanwhile goes with the next. The
controller's answer, or its next order, settles a proposal; while it cannot be reached nothing is settled, and
the leaders stay as careful as their proposals make them. (Kafka: `AlterPartitionManager`.)
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from broker.replication.in_sync import NO_BROKER_EPOCH
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from protocol.messages.alter_partition_response import AlterPartitionResponse
from protocol.messages.alter_partition_response import PartitionData as Answer

if TYPE_CHECKING:
    from broker.replication.partition import Partition

logger = logging.getLogger("isthmus.broker")

_RETRY_S = 0.05
_LONGEST_RETRY_S = 1.0
# The controller has moved on and its order is on the way. Until it is here nothing is settled: an earlier
# attempt, whose answer was lost, may have been stored.
_SUPERSEDED = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)

Ask = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
"""Sends to whoever is the controller; raises ProtocolError, OSError."""


class IsrUpdates:
    def __init__(self, broker_id: int, broker_epoch: Callable[[], int], ask: Ask) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._ask = ask
        self._waiting: dict[tuple[bytes, int], Partition] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.shrunk = 0
        self.expanded = 0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="ISR updates")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def propose(self, partition: Partition) -> None:
        """Tell the controller of the partition's proposal; may be repeated."""
        self._waiting[partition.topic_id, partition.index] = partition
        self._wake.set()

    async def _run(self) -> None:
        pause = _RETRY_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            partitions = [
                each
                for each in self._waiting.values()
                if each.is_leader and each.in_sync.proposed is not None  # else it has stopped meanwhile
            ]
            self._waiting.clear()
            if not partitions:
                continue
            try:
                response = await self._ask(self._request(partitions))
            except (ProtocolError, OSError, TimeoutError) as error:
                logger.warning("the controller cannot be told of in-sync replicas: %s", error)
                again = partitions
            except Exception:
                logger.exception("telling the controller of in-sync replicas failed")
                again = partitions
            else:
                again = self._settle(partitions, response)
            if not again:
                pause = _RETRY_S
                continue
            for partition in again:  # a replica made anew, which has proposed meanwhile, stays
                self._waiting.setdefault((partition.topic_id, partition.index), partition)
            self._wake.set()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_RETRY_S)

    def _request(self, partitions: list[Partition]) -> AlterPartitionRequest:
        by_topic: dict[bytes, list[PartitionData]] = defaultdict(list)
        for partition in partitions:
            by_topic[partition.topic_id].append(
                PartitionData(
                    partition_index=partition.index,
                    leader_epoch=partition.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=member, broker_epoch=self._epoch_of(partition, member))
                        for member in partition.in_sync.proposed or ()
                    ],
                    partition_epoch=partition.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=[TopicData(topic_id=topic_id, partitions=each) for topic_id, each in by_topic.items()],
        )

    def _epoch_of(self, partition: Partition, member: int) -> int:
        """By which the controller sees whether that broker was started again since it fetched (KIP-903)."""
        if member == self._broker_id:
            return self._broker_epoch()
        follower = partition.in_sync.followers.get(member)
        return NO_BROKER_EPOCH if follower is None else follower.broker_epoch

    def _settle(self, partitions: list[Partition], response: AlterPartitionResponse) -> list[Partition]:
        """Take the answers; returns the partitions to ask for again."""
        if response.error_code:
            return partitions
        answers = {
            (topic.topic_id, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        again = []
        for partition in partitions:
            answer = answers.get((partition.topic_id, partition.index))
            open_still = partition.is_leader and partition.in_sync.proposed is not None
            if open_still and (answer is None or not self._is_settled(partition, answer)):
                again.append(partition)
        return again

    def _is_settled(self, partition: Partition, answer: Answer) -> bool:
        code = ErrorCode.of(answer.error_code)
        before = partition.isr
        if code == ErrorCode.NONE:
            if answer.leader_epoch == partition.leader_epoch:  # else of a term that is over
                partition.settle_isr(answer.isr, answer.partition_epoch)
                self.shrunk += len(answer.isr) < len(before)
                self.expanded += len(answer.isr) > len(before)
                logger.info("%s: in-sync replicas %s, before %s", partition, list(answer.isr), list(before))
            return True
        logger.info(
            "%s: the controller answered %s to in-sync replicas %s",
            partition, code.name, partition.in_sync.proposed,
        )  # fmt: skip
        if code == ErrorCode.INELIGIBLE_REPLICA:  # stopped or started again meanwhile: it will fetch again
            partition.isr_refused()
            return True
        return code in _SUPERSEDED
