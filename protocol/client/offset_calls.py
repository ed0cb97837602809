"""Offsets of partitions: by time, first and last, and deleting what lies before one."""

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Final, NamedTuple

from protocol.client.errors import ClientError
from protocol.client.failures import failure
from protocol.client.retry import RetryPolicy, retrying
from protocol.client.spread import Isolation, LeaderCalls, by_topic
from protocol.client.together import Together
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
        at = partial(self._listed, isolation)
        return await self.spread(wanted, at, retry or self.retry)

    async def offset(
        self,
        tp: TopicPartition,
        at: int,
        *,
        isolation: int = Isolation.READ_UNCOMMITTED,
        retry: RetryPolicy | None = None,
    ) -> ListedOffset:
        """As `list_offsets`, of one partition. Those asked for at the same moment share a request for each
        broker, so that one that is silent holds up its own partitions alone."""

        async def attempt() -> ListedOffset:
            key = (await self.leader(tp)).node, at, isolation
            together = self._together.get(key)
            if together is None:
                together = self._together[key] = Together(partial(self._offsets, *key))
            try:
                return await together.one(tp)
            except KafkaError as error:
                raise self.moved(tp, error) from None
            except ClientError:
                self.forget_leader(tp)
                raise

        return await retrying(attempt, retry or self.retry)

    @cached_property
    def _together(self) -> dict[tuple[int, int, int], Together[TopicPartition, ListedOffset]]:
        return {}

    async def _offsets(
        self, node: int, at: int, isolation: int, tps: list[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        return await self._listed(isolation, node, dict.fromkeys(tps, at))

    async def _listed(
        self, isolation: int, node: int, part: dict[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """What this broker answers about its partitions."""
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
