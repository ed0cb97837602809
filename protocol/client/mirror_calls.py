"""What only isthmus brokers answer: appending to mirrors at given offsets, ending and cutting them; and where
leader epochs ended (OffsetForLeaderEpoch), which any Kafka tells.

Owns the requests and their answers per partition. What follows from an answer is the caller's to decide, so
refusals of single partitions are results here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from protocol.client.failures import failure
from protocol.client.retry import NO_RETRIES, RetryPolicy, may_be_cured, retrying
from protocol.client.spread import LeaderCalls, by_topic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.private.alter_mirrors_request import (
    AlterMirrorsPartition,
    AlterMirrorsRequest,
    AlterMirrorsTopic,
)
from protocol.private.mirror_append_request import (
    MirrorAppendPartition,
    MirrorAppendRequest,
    MirrorAppendTopic,
)
from protocol.private.mirror_append_response import MirrorAppendPartitionResult
from protocol.private.settle_mirrors_request import (
    SettleMirrorsPartition,
    SettleMirrorsRequest,
    SettleMirrorsTopic,
)
from protocol.types import Buffer, TopicPartition

MIRROR_SOURCE: Final = "isthmus.mirror.source"
"""The topic setting that says whose mirror a topic is."""
NO_EPOCH: Final = -1
_TELL: Final = -1
_NO_CUT: Final = -1


class MirrorStand(NamedTuple):
    """How the leader of a mirror partition stands. `last_epoch` is that of its last batch, -1 without any."""

    start: int
    end: int
    high_watermark: int
    leader_epoch: int
    last_epoch: int
    open_transactions: int


class MirrorAnswer(NamedTuple):
    """`stand` is None where the broker does not lead the partition."""

    stand: MirrorStand | None
    error: KafkaError | None


class MirrorBatches(NamedTuple):
    """Batches from `offset` on (None: only that the source begins at `source_start`)."""

    offset: int
    records: Buffer | None
    source_start: int


class EpochEnd(NamedTuple):
    """The largest epoch not above the one asked for, and where it ended; both -1 where that is not known."""

    epoch: int
    end: int


class Settling(NamedTuple):
    """In the term `leader_epoch`: end what the source's producers have open, or (from 0) cut the log back."""

    source: str
    leader_epoch: int
    cut_to: int = _NO_CUT


class Settled(NamedTuple):
    """Where the log ends then, and how many transactions were aborted."""

    end: int
    aborted: int


class Change(NamedTuple):
    """Whose mirror a topic is to be (None: no mirror), and whose it is taken to be now."""

    source: str | None
    expected: str | None


class MirrorCalls(LeaderCalls):
    """Part of `ClusterClient`."""

    async def mirror_append(
        self,
        node_id: int,
        sources: Mapping[str, str],
        batches: Mapping[TopicPartition, MirrorBatches],
        *,
        timeout_ms: int = 30_000,
        lane: str = "mirror",
    ) -> dict[TopicPartition, MirrorAnswer]:
        """One request to one leader; `sources` by topic. Raises ClientError, NotSupportedError."""
        request = MirrorAppendRequest(
            timeout_ms=timeout_ms,
            topics=[
                MirrorAppendTopic(
                    name=name,
                    source=sources[name],
                    partitions=[
                        MirrorAppendPartition(
                            index=tp.partition,
                            expected_offset=each.offset,
                            log_start_offset=each.source_start,
                            records=each.records,
                        )
                        for tp, each in rows
                    ],
                )
                for name, rows in by_topic(batches).items()
            ],
        )
        answer = await self.send_to(node_id, request, lane=lane, timeout_s=self.timeout_s + timeout_ms / 1000)
        return {
            (tp := TopicPartition(topic.name, row.index)): _answer(tp, row)
            for topic in answer.topics
            for row in topic.partitions
        }

    async def mirror_stand(
        self, tp: TopicPartition, source: str, *, retry: RetryPolicy = NO_RETRIES
    ) -> MirrorStand:
        """How a mirror stands. Raises KafkaError (INVALID_TOPIC_EXCEPTION: it is not a mirror of that)."""
        return (await self.mirror_stands({tp: source}, retry=retry))[tp]

    async def mirror_stands(
        self, sources: Mapping[TopicPartition, str], *, retry: RetryPolicy = NO_RETRIES
    ) -> dict[TopicPartition, MirrorStand]:
        """How mirrors of these sources stand. Raises KafkaError."""
        return await self.spread(sources, self._stands_at, retry)

    async def ask_mirrors(
        self, sources: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, MirrorStand | BaseException]:
        """As `mirror_stands`, asked once; refusals are results."""
        return await self.spread_once(sources, self._stands_at)

    async def _stands_at(
        self, node: int, sources: dict[TopicPartition, str]
    ) -> dict[TopicPartition, MirrorStand | BaseException]:
        tell = dict.fromkeys(sources, MirrorBatches(_TELL, None, -1))
        of = {tp.topic: source for tp, source in sources.items()}
        answers = await self.mirror_append(node, of, tell, lane="mirror stand")
        return {
            tp: answer.error or answer.stand or failure(ErrorCode.NOT_LEADER_OR_FOLLOWER, tp)
            for tp, answer in answers.items()
        }

    async def settle_mirror(
        self, tp: TopicPartition, source: str, leader_epoch: int, *, cut_to: int = _NO_CUT
    ) -> Settled:
        """As `settle_mirrors`, of one partition."""
        return (await self.settle_mirrors({tp: Settling(source, leader_epoch, cut_to)}))[tp]

    async def settle_mirrors(
        self, wanted: Mapping[TopicPartition, Settling], *, retry: RetryPolicy | None = None
    ) -> dict[TopicPartition, Settled]:
        """Ends what the sources' producers left open, or cuts. Raises the first error that stayed."""

        async def at(
            node: int, part: dict[TopicPartition, Settling]
        ) -> dict[TopicPartition, Settled | BaseException]:
            topics = [
                SettleMirrorsTopic(
                    name=name,
                    source=rows[0][1].source,
                    partitions=[
                        SettleMirrorsPartition(
                            index=tp.partition, leader_epoch=each.leader_epoch, cut_to=each.cut_to
                        )
                        for tp, each in rows
                    ],
                )
                for name, rows in by_topic(part).items()
            ]
            request = SettleMirrorsRequest(timeout_ms=int(self.timeout_s * 1000), topics=topics)
            answer = await self.send_to(node, request, timeout_s=2 * self.timeout_s)
            return {
                (tp := TopicPartition(topic.name, row.index)): failure(row.error_code, tp, row.error_message)
                if row.error_code
                else Settled(row.log_end_offset, row.aborted_transactions)
                for topic in answer.topics
                for row in topic.partitions
            }

        return await self.spread(wanted, at, retry or self.retry)

    async def raise_mirrors(
        self, least_epochs: Mapping[TopicPartition, int], *, retry: RetryPolicy | None = None
    ) -> None:
        """Has the controller raise leader epochs to at least these. Raises KafkaError."""
        topics = [
            AlterMirrorsTopic(
                name=name,
                changes_source=False,
                partitions=[
                    AlterMirrorsPartition(index=tp.partition, least_epoch=epoch) for tp, epoch in rows
                ],
            )
            for name, rows in by_topic(least_epochs).items()
        ]
        await self._alter_mirrors(topics, retry)

    async def change_mirrors(
        self, changes: Mapping[str, Change], *, retry: RetryPolicy | None = None
    ) -> None:
        """Changes whose mirrors topics are. Raises KafkaError; those behind it may have been changed too."""
        topics = [
            AlterMirrorsTopic(
                name=name, changes_source=True, expected_source=change.expected, source=change.source
            )
            for name, change in changes.items()
        ]
        await self._alter_mirrors(topics, retry)

    async def _alter_mirrors(self, topics: list[AlterMirrorsTopic], retry: RetryPolicy | None) -> None:
        async def attempt() -> None:
            answer = await self.send_controller(AlterMirrorsRequest(topics=topics))
            errors: list[KafkaError] = []
            for row in answer.topics:
                if row.error_code == ErrorCode.NOT_CONTROLLER:
                    self.forget_controller()
                if row.error_code:
                    errors.append(failure(row.error_code, f"topic {row.name}", row.error_message))
                errors += [
                    failure(each.error_code, f"{row.name}-{each.index}", each.error_message)
                    for each in row.partitions
                    if each.error_code
                ]
            if errors:
                raise next((error for error in errors if not may_be_cured(error)), errors[0])

        await retrying(attempt, retry or self.retry)

    async def epoch_ends(
        self, wanted: Mapping[TopicPartition, int], *, retry: RetryPolicy | None = None
    ) -> dict[TopicPartition, EpochEnd]:
        """Where leader epochs ended in the leaders' logs (KIP-101, KIP-279)."""

        async def at(
            node: int, part: dict[TopicPartition, int]
        ) -> dict[TopicPartition, EpochEnd | KafkaError]:
            return await self.epoch_ends_at(node, {tp: (epoch, NO_EPOCH) for tp, epoch in part.items()})

        return await self.spread(wanted, at, retry or self.retry)

    async def epoch_ends_at(
        self, node: int, wanted: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, EpochEnd | KafkaError]:
        """The same at one broker: of each partition, the epoch asked for and that of its leader. A broker
        that is no leader of that epoch says so (KIP-320). Raises ProtocolError."""
        topics = [
            OffsetForLeaderTopic(
                topic=name,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=tp.partition, current_leader_epoch=current, leader_epoch=epoch
                    )
                    for tp, (epoch, current) in rows
                ],
            )
            for name, rows in by_topic(wanted).items()
        ]
        answer = await self.send_to(node, OffsetForLeaderEpochRequest(replica_id=-1, topics=topics))
        return {
            (tp := TopicPartition(topic.topic, row.partition)): failure(row.error_code, tp)
            if row.error_code
            else EpochEnd(row.leader_epoch, row.end_offset)
            for topic in answer.topics
            for row in topic.partitions
        }


def _answer(tp: TopicPartition, row: MirrorAppendPartitionResult) -> MirrorAnswer:
    error = failure(row.error_code, tp, row.error_message) if row.error_code else None
    if row.log_end_offset < 0:
        return MirrorAnswer(None, error)
    stand = MirrorStand(
        row.log_start_offset,
        row.log_end_offset,
        row.high_watermark,
        row.leader_epoch,
        row.last_epoch,
        row.open_transactions,
    )
    return MirrorAnswer(stand, error)
