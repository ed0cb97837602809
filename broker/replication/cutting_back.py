"""What a follower asks its leader before it copies: where epochs ended there, and where the log begins.

Owns the two questions (OffsetForLeaderEpoch, ListOffsets) for many partitions at once; what follows from the
answers is `followed_copy`'s. Must not fetch. (Kafka: `AbstractFetcherThread.maybeTruncate`,
`fetchOffsetAndTruncate`, KIP-101, KIP-279.)
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from broker.replication.followed_copy import Copy
from broker.replication.truncation import UNDEFINED
from protocol.errors import ErrorCode
from protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from protocol.client import Connection

EARLIEST = -2
# The leader knows of another state than this follower; the controller will tell. Try again soon, then later.
LEADERSHIP_ERRORS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


def now() -> float:
    """Of the clock that `Copy.not_before` is on."""
    return asyncio.get_running_loop().time()


class CuttingBack:
    """`is_followed` says whether that is so still, after others have had their turn."""

    def __init__(self, broker_id: int, timeout_s: float, is_followed: Callable[[Copy], bool]) -> None:
        self._broker_id = broker_id
        self._timeout_s = timeout_s
        self._is_followed = is_followed

    async def cut_back(self, connection: Connection, asked: Collection[Copy]) -> None:
        """One question for each; what is not settled then has to be asked about again.

        Raises ProtocolError, OSError.
        """
        begun = now()
        empty = [copy for copy in asked if copy.needs_start]
        if empty:
            await self._find_starts(connection, empty)
        ends = [copy for copy in asked if not copy.truncated and copy.not_before <= begun]
        if not ends:
            return
        copies = {(copy.partition.topic, copy.partition.index): copy for copy in ends}
        by_name: dict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
        for copy in ends:
            by_name[copy.partition.topic].append(
                OffsetForLeaderPartition(
                    partition=copy.partition.index,
                    current_leader_epoch=copy.leader_epoch,
                    # Without any epoch of its own it asks where the leader's log ends.
                    leader_epoch=copy.leader_epoch if copy.latest_epoch == UNDEFINED else copy.latest_epoch,
                )
            )
        response = await connection.send(
            OffsetForLeaderEpochRequest(
                replica_id=self._broker_id,
                topics=[OffsetForLeaderTopic(topic=name, partitions=each) for name, each in by_name.items()],
            ),
            timeout_s=self._timeout_s,
        )
        for topic in response.topics:
            for end in topic.partitions:
                known = copies.pop((topic.topic, end.partition), None)
                if known is None or not self._is_followed(known):
                    continue
                if end.error_code:
                    known.delay(now(), soon=end.error_code in LEADERSHIP_ERRORS)
                else:
                    known.cut(end.leader_epoch, end.end_offset, now())
        for copy in copies.values():  # not answered
            copy.delay(now())

    async def _find_starts(self, connection: Connection, empty: list[Copy]) -> None:
        """Where the leader's log begins, for followers that have nothing of it: they begin there."""
        copies = {(copy.partition.topic, copy.partition.index): copy for copy in empty}
        by_name: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for copy in empty:
            by_name[copy.partition.topic].append(
                ListOffsetsPartition(
                    partition_index=copy.partition.index,
                    current_leader_epoch=copy.leader_epoch,
                    timestamp=EARLIEST,
                )
            )
        response = await connection.send(
            ListOffsetsRequest(
                replica_id=self._broker_id,
                topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in by_name.items()],
            ),
            timeout_s=self._timeout_s,
        )
        for topic in response.topics:
            for start in topic.partitions:
                known = copies.pop((topic.name, start.partition_index), None)
                if known is None or not self._is_followed(known):
                    continue
                if start.error_code:
                    known.delay(now(), soon=start.error_code in LEADERSHIP_ERRORS)
                else:
                    known.begin(start.offset, now())
        for copy in copies.values():
            copy.delay(now())
