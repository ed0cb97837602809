"""One pass over the partitions of a Fetch request or session: what each of them is answered.

Owns reading beside others' turns and beside the disk: what is read is the page cache's or a thread's. What
becomes of what was found, and waiting for more, is `fetch_job`'s. (Kafka: `ReplicaManager.readFromLog`.)
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.config.cluster_settings import RACK_AWARE_SELECTOR
from broker.log import CorruptLog, Log, LogSlice, NotCached, OffsetOutOfRange, StorageFailed
from broker.log.region import Located, locate
from broker.replication import Partition
from broker.replication.read_replica import nearest
from broker.server.context import RequestContext
from broker.server.current_leader import current_leader
from broker.server.fetch_sessions import IDS_FROM, Partitions, Wanted
from broker.server.parted_logs import parted_at
from broker.server.turns import ITEMS_IN_A_TURN
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch_request import FetchPartition, FetchRequest
from protocol.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from broker.server.app import Broker

READ_COMMITTED = 1
_FOLLOWERS_FROM = 11
_LEADER_FROM = 12
_ADDRESS_FROM = 16
_NO_OFFSET = -1
_NO_REPLICA = -1
READ_IN_A_TURN = 16
"""Partitions with data: finding it takes a tenth of a millisecond."""
UNKNOWN_LAST: dict[int, int] = {ErrorCode.UNKNOWN_TOPIC_ID: 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2}
"""Errors whose partitions stand behind all others in an answer, as in Kafka, in this order."""


class _Cold(NamedTuple):
    """A read that has to go to the disk, with `Log.read`'s arguments."""

    log: Log
    offset: int
    max_bytes: int
    max_offset: int
    min_one: bool

    def read(self) -> LogSlice | Located:
        found = locate(*self, blocking=True)
        return self.log.read_blocking(*self[1:]) if found is None else found


# A pass yields each read that has to go to the disk, and None when others should have their turn.
Need = _Cold | None
Found = LogSlice | Located
Pass = Generator[Need, Found | None, None]


def _aborted(log: Log, offset: int, found: LogSlice | Located) -> list[AbortedTransaction]:
    """What a read_committed reader must drop from what it is sent."""
    if not found.size:
        return []
    return [
        AbortedTransaction(producer_id=gone.producer_id, first_offset=gone.first_offset)
        for gone in log.aborted_transactions(offset, found.next_offset)
    ]


def _is_news(wanted: Wanted, data: PartitionData) -> bool:
    """Whether a session's reader must be told about this partition (Kafka: CachedPartition)."""
    return bool(
        data.records
        or data.error_code
        or data.high_watermark != wanted.high_watermark
        or data.log_start_offset != wanted.log_start_offset
        or data.preferred_read_replica != _NO_REPLICA
        or (data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0)
    )


def told(wanted: Wanted, data: PartitionData) -> None:
    """Notes what a session's reader knows now. After an error the partition counts as unknown: the first
    answer without one is news."""
    wanted.high_watermark = _NO_OFFSET if data.error_code else data.high_watermark
    wanted.log_start_offset = data.log_start_offset


def replica_of(request: FetchRequest) -> int:
    """Broker id of the follower that asks, -1 for a client."""
    return request.replica_id if request.replica_state is None else request.replica_state.replica_id


class FetchPass:
    """What to read from where, and what the last pass has found."""

    __slots__ = (
        "_broker", "_committed", "_failed", "_incremental", "_leaders", "_listener", "_max_bytes",
        "_privileged", "_rack", "_size", "_version", "_wanted", "found", "nodes",
    )  # fmt: skip

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        broker: Broker = context.broker
        self._broker = broker
        self._version = context.api_version
        self._listener = context.connection.listener
        self._committed = request.isolation_level == READ_COMMITTED
        self._privileged = replica_of(request) >= 0
        # Other brokers do not say where they are, nor do clients of a cluster where all read from leaders.
        near = broker.config.replica_selector_class == RACK_AWARE_SELECTOR and not self._privileged
        self._rack = request.rack_id if near else ""
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._wanted: Partitions
        self._incremental: bool
        """Whether what the reader knows already is left out."""
        self._failed = False
        self._size = 0
        self._leaders: list[tuple[Partition, int, int]] = []  # readable end, bytes read
        self.found: list[tuple[Wanted, PartitionData]] = []
        self.nodes: list[NodeEndpoint] = []

    def read_all(self) -> Pass:
        """Find what is to be answered. Yields each read that is not in the page cache; is sent its result or
        error.
        """
        self._failed = False
        self._size = 0
        self._leaders = []
        self.found = []
        self.nodes = []
        incremental = self._incremental
        with_data = 0
        every = self._to_look_at()
        # The request's own table cannot change under the loop; a session's can, while others have their turn.
        if incremental or len(every) > ITEMS_IN_A_TURN:
            every = list(every)
        for count, wanted in enumerate(every, 1):
            if incremental and self._is_idle(wanted):
                continue
            data = yield from self._look_at(wanted)
            if not incremental or _is_news(wanted, data):
                self.found.append((wanted, data))
            with_data += bool(data.records)
            if count % ITEMS_IN_A_TURN == 0 or with_data == READ_IN_A_TURN:
                with_data = 0
                yield None

    def _to_look_at(self) -> Collection[Wanted]:
        return self._wanted.values()

    def _is_idle(self, wanted: Wanted) -> bool:
        """Whether there is nothing to tell about a partition of a session; most are so most of the time."""
        partition, asked = wanted.partition, wanted.asked
        if partition is None or not self._may_read(partition):
            return False
        log = partition.log
        limit = self._limit(log)
        if (
            asked.fetch_offset != limit
            or log.high_watermark != wanted.high_watermark
            or log.start_offset != wanted.log_start_offset
            or asked.current_leader_epoch not in (-1, partition.leader_epoch)
            or asked.current_leader_epoch < 0 <= asked.last_fetched_epoch  # of whatever term: compare
        ):
            return False
        self._leaders.append((partition, limit, 0))
        return True

    def _look_at(self, wanted: Wanted) -> Generator[Need, Found | None, PartitionData]:
        index = wanted.asked.partition
        name = wanted.topic
        wanted.partition = None
        try:
            if self._version >= IDS_FROM:
                name = self._broker.metadata.topic_name(wanted.topic_id) or ""
                if not name:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            partition = self._find(name, index, wanted.asked.current_leader_epoch)
            if self._version >= IDS_FROM and partition.topic_id != wanted.topic_id:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
            wanted.partition = partition
            instead = self._instead(partition, wanted)
            if instead is not None:
                return instead
            return (yield from self._read(partition, wanted))
        except KafkaError as error:
            return self._refusal(name, index, error.code)
        except OffsetOutOfRange:
            return self._out_of_range(name, wanted.asked, wanted.partition)
        except (CorruptLog, StorageFailed) as error:
            if isinstance(error, CorruptLog):  # as Kafka counts: not what is merely somewhere else
                self._broker.metrics.topic(name).failed_fetch += 1
            return self._refusal(name, index, self._broker.damage.code(str(partition), error))

    def _instead(self, partition: Partition, wanted: Wanted) -> PartitionData | None:
        """What is answered in place of records, if anything is: where to read from now on, or up to where
        both histories may be the same (KIP-595)."""
        asked = wanted.asked
        nearer = self._nearer(partition, asked.fetch_offset)
        if nearer is not None:
            aborted: list[AbortedTransaction] | None = [] if self._committed else None
            return self._without_records(
                partition, asked.partition, aborted_transactions=aborted, preferred_read_replica=nearer
            )
        # A follower that serves may not be as far yet as the reader is, which parts nobody.
        if asked.last_fetched_epoch < 0 or not partition.is_leader or self._privileged:
            return None
        parted = parted_at(partition.log, asked)
        if parted is None:
            return None
        wanted.partition = None
        epoch, end = parted
        if epoch < 0 or asked.fetch_offset < partition.log.start_offset:
            return self._out_of_range(partition.topic, asked, partition)
        diverging = EpochEndOffset(epoch=epoch, end_offset=end)
        return self._without_records(
            partition, asked.partition, aborted_transactions=None, diverging_epoch=diverging
        )

    def _out_of_range(self, topic: str, asked: FetchPartition, partition: Partition | None) -> PartitionData:
        """Readers begin anew by their policy then. So it is not said of the log's end by who may have been
        deposed: the reader may come from the leader, and have read further."""
        deposed = (
            partition is not None
            and partition.is_leader
            and asked.fetch_offset >= partition.log.start_offset
            and partition.may_be_deposed()
        )
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if deposed else ErrorCode.OFFSET_OUT_OF_RANGE
        return self._refusal(topic, asked.partition, code)

    def _without_records(self, partition: Partition, index: int, **more: Any) -> PartitionData:
        """Answered at once."""
        self._failed = True
        log = partition.log
        return PartitionData(
            partition_index=index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.start_offset,
            records=b"",
            **more,
        )

    def _read(self, partition: Partition, wanted: Wanted) -> Generator[Need, Found | None, PartitionData]:
        log, asked = partition.log, wanted.asked
        high_watermark = log.high_watermark
        stable = log.last_stable_offset
        limit = self._limit(log)
        max_bytes = max(0, min(asked.partition_max_bytes, self._max_bytes - self._size))
        offset, min_one = asked.fetch_offset, self._size == 0
        found: Found | None
        try:
            if offset == limit and offset >= log.start_offset:  # most readers, most of the time
                found = LogSlice([], 0, offset)
            else:
                found = locate(log, offset, max_bytes, limit, min_one)
            if found is None:
                found = log.read(offset, max_bytes, limit, min_one)
        except NotCached:
            found = yield _Cold(log, offset, max_bytes, limit, min_one)
        assert found is not None
        self._size += found.size
        self._leaders.append((partition, limit, found.size))
        return PartitionData(
            partition_index=asked.partition,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=log.start_offset,
            # Null as well where a batch is there that is larger than what is left, as in Kafka.
            aborted_transactions=_aborted(log, offset, found)
            if self._committed and (found.size or offset >= limit or not max_bytes)
            else None,
            records=found.segments,  # type: ignore[arg-type]  # the edge sends regions from their files
        )

    def _limit(self, log: Log) -> int:
        """Where reading ends for this reader."""
        return log.last_stable_offset if self._committed else log.high_watermark

    # -- replicas nearby (KIP-392)

    def _find(self, topic: str, index: int, current_leader_epoch: int) -> Partition:
        if self._version < _FOLLOWERS_FROM:
            return self._broker.replicas.leader(topic, index, current_leader_epoch)
        return self._broker.replicas.readable(topic, index, current_leader_epoch)

    def _may_read(self, partition: Partition) -> bool:
        return partition.is_leader or (self._version >= _FOLLOWERS_FROM and partition.leader >= 0)

    def _nearer(self, partition: Partition, offset: int) -> int | None:
        """A replica in the client's rack that it should rather read from."""
        if not self._rack or not partition.is_leader:
            return None
        metadata, in_sync = self._broker.metadata, partition.in_sync
        members = [in_sync.followers[each] for each in in_sync.members if each in in_sync.followers]
        chosen = nearest(
            self._rack, offset, partition.leader, members, partial(metadata.rack_on, self._listener)
        )
        return None if chosen == partition.leader else chosen

    # -- refusals

    def _refusal(self, topic: str, index: int, code: ErrorCode) -> PartitionData:
        self._failed = True
        answer = PartitionData(
            partition_index=index,
            error_code=code,
            high_watermark=_NO_OFFSET,
            aborted_transactions=[] if code in UNKNOWN_LAST else None,  # as Kafka has it
            records=b"",
        )
        if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            self._name_leader(topic, index, answer)
        return answer

    def _name_leader(self, topic: str, index: int, answer: PartitionData) -> None:
        known = current_leader(self._broker.metadata, topic, index, self._listener)
        if known is None or self._version < _LEADER_FROM:
            return
        answer.current_leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
        if self._version >= _ADDRESS_FROM and all(node.node_id != known.leader for node in self.nodes):
            self.nodes.append(
                NodeEndpoint(node_id=known.leader, host=known.host, port=known.port, rack=known.rack)
            )
