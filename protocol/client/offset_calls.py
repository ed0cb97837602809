"""Offsets of partitions: by time, first and last, and deleting what lies before one."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from protocol.client.failures import failure
from protocol.client.retry import RetryPolicy
from protocol.client.spread import Isolation, LeaderCalls, by_topic
from protocol.errors import KafkaError
from protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.types import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3


class ListedOffset(NamedTuple):
    """`offset` is -1 if no record is that late; `timestamp` (ms) is -1 for LATEST and EARLIEST."""

    offset: int
    timestamp: int
    leader_epoch: int


class OffsetCalls(LeaderCalls):
    """Part of `ClusterClient`."""

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        isolation: int = Isolation.READ_UNCOMMITTED,
        retry: RetryPolicy | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """First offset whose timestamp is at or after the given one (ms), or for LATEST, EARLIEST,
        MAX_TIMESTAMP. One request per broker."""

        async def at(
            node: int, part: dict[TopicPartition, int]
        ) -> dict[TopicPartition, ListedOffset | KafkaError]:
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                timeout_ms=int(self.timeout_s * 1000),
                topics=[
                    ListOffsetsTopic(
                        name=name,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=tp.partition,
                                current_leader_epoch=(await self.leader(tp)).epoch,
                                timestamp=timestamp,
                            )
                            for tp, timestamp in rows
                        ],
                    )
                    for name, rows in by_topic(part).items()
                ],
            )
            answer = await self.send_to(node, request)
            return {
                (tp := TopicPartition(topic.name, row.partition_index)): failure(row.error_code, tp)
                if row.error_code
                else ListedOffset(row.offset, row.timestamp, row.leader_epoch)
                for topic in answer.topics
                for row in topic.partitions
            }

        return await self.spread(wanted, at, retry or self.retry)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, retry: RetryPolicy | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes everything before the offsets (-1: before the high watermark). New log start offsets."""

        async def at(node: int, part: dict[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
            request = DeleteRecordsRequest(
                timeout_ms=int(self.timeout_s * 1000),
                topics=[
                    DeleteRecordsTopic(
                        name=name,
                        partitions=[
                            DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
                            for tp, offset in rows
                        ],
                    )
                    for name, rows in by_topic(part).items()
                ],
            )
            answer = await self.send_to(node, request, timeout_s=2 * self.timeout_s)
            return {
                (tp := TopicPartition(topic.name, row.partition_index)): failure(row.error_code, tp)
                if row.error_code
                else row.low_watermark
                for topic in answer.topics
                for row in topic.partitions
            }

        return await self.spread(before, at, retry or self.retry)
