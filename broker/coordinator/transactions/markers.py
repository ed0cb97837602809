"""Markers that end a transaction: written into own partitions, sent to the leaders of others.

Goes on until each partition has its marker or is gone (Kafka's TransactionMarkerChannelManager). A topic
that was deleted and made again gets none: the transaction has left nothing in it. The marker of a transaction
of version 2 carries the epoch after the transaction's: where the partition has heard of that epoch already it
comes late (KIP-1228). Knows no other rules of transactions.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from broker.control.internal_topics import TRANSACTIONS_TOPIC
from broker.control.metadata_cache import NO_LEADER, MetadataCache
from broker.coordinator.offsets_log import OFFSETS_TOPIC
from broker.log import AppendRefused, LogError, Origin
from broker.replication.partition import Partition
from protocol.client import Connection
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.records import Record, build_batch
from protocol.types import TopicPartition

logger = logging.getLogger("isthmus.broker.coordinator")

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0
_SEND_TIMEOUT_S: Final = 10.0
_REPLICATED_S: Final = 8.0
"""Longest wait for the other replicas before the marker is written again: less than what senders wait."""
_IN_A_TURN: Final = 100
_STRICT_FROM: Final = 2
FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""The partition has heard of a newer producer or coordinator: its own marker is there or will come."""


class Ending(NamedTuple):
    """How a producer's transaction ends; `version` is that of its transactions."""

    producer_id: int
    epoch: int
    commit: bool
    coordinator_epoch: int
    version: int = 0


class Replicas(Protocol):
    """What markers need of the replica manager."""

    broker_id: int

    def leader(self, topic: str, partition: int) -> Partition: ...


def marker_batch(ending: Ending, now_ms: int) -> bytes:
    """The control batch that Kafka writes for this ending."""
    key = _KEY.pack(0, 1 if ending.commit else 0)
    value = _VALUE.pack(0, ending.coordinator_epoch)
    return build_batch(
        [Record(offset=0, timestamp=now_ms, key=key, value=value)],
        producer_id=ending.producer_id,
        producer_epoch=ending.epoch,
        transactional=True,
        control=True,
    )


class Watch:
    """Between "may this producer write here?" and its write no end may slip in.

    (Kafka: VerificationGuard.)
    """

    __slots__ = ("ended", "epoch", "partition", "producer_id")

    def __init__(self, partition: TopicPartition, producer_id: int) -> None:
        self.partition = partition
        self.producer_id = producer_id
        self.ended = False
        self.epoch = -1
        """The highest of the ends that came."""

    def forbids(self, epoch: int, *, version: int = 0) -> bool:
        """Whether an end that came took the word back that a producer of this epoch was given.

        In transactions of version 2 the end of its own one has a later epoch; another may well be that of the
        transaction before.
        """
        return self.epoch > epoch if version >= _STRICT_FROM else self.ended


class _Written(NamedTuple):
    """A marker in a leader's log; `code` is the answer once the other replicas have it too."""

    partition: TopicPartition
    replica: Partition
    last_offset: int
    leader_epoch: int
    code: ErrorCode


class MarkerWriter:
    """Writes markers into this broker's own partitions; `on_offsets` hears of those in the offsets topic."""

    def __init__(
        self,
        replicas: Replicas,
        now_ms: Callable[[], int],
        on_offsets: Callable[[int, int, bool], None],
    ) -> None:
        self._replicas = replicas
        self._now_ms = now_ms
        self._on_offsets = on_offsets
        self._watched: dict[tuple[TopicPartition, int], list[Watch]] = {}

    @property
    def broker_id(self) -> int:
        return self._replicas.broker_id

    def watch(self, partition: TopicPartition, producer_id: int) -> Watch:
        """From now on remember whether a marker of this producer comes; to be ended by `unwatch`."""
        watch = Watch(partition, producer_id)
        self._watched.setdefault((partition, producer_id), []).append(watch)
        return watch

    def unwatch(self, watch: Watch) -> None:
        key = (watch.partition, watch.producer_id)
        others = [each for each in self._watched.pop(key, []) if each is not watch]
        if others:
            self._watched[key] = others

    async def write(
        self,
        partitions: Iterable[TopicPartition],
        ending: Ending,
        *,
        only_known: Container[TopicPartition] = (),
    ) -> dict[TopicPartition, ErrorCode]:
        """Append markers and wait until every in-sync replica has them: a marker that is lost with its leader
        would leave a transaction open for ever. `only_known`: not where the partition has never seen the
        producer.
        """
        answers: dict[TopicPartition, ErrorCode] = {}
        written: list[_Written] = []
        for count, partition in enumerate(partitions, 1):
            found = self._append(partition, ending, only_known=partition in only_known)
            if isinstance(found, ErrorCode):
                answers[partition] = found
            else:
                written.append(found)
            if count % _IN_A_TURN == 0:
                await asyncio.sleep(0)
        deadline = asyncio.get_running_loop().time() + _REPLICATED_S
        for each in written:
            left = deadline - asyncio.get_running_loop().time()
            code = await each.replica.wait_acknowledged(each.last_offset, each.leader_epoch, left)
            if code is ErrorCode.NONE:
                code = each.code
                if each.partition.topic == OFFSETS_TOPIC:
                    self._on_offsets(each.partition.partition, ending.producer_id, ending.commit)
            answers[each.partition] = code
        return answers

    def _append(self, partition: TopicPartition, ending: Ending, *, only_known: bool) -> ErrorCode | _Written:
        try:
            replica = self._replicas.leader(partition.topic, partition.partition)
            config = replica.log.config
            if config.is_mirror and not config.is_fenced:  # it takes batches of its source alone
                self._tell(partition, ending)
                return ErrorCode.NONE
            producer = replica.log.producers.get(ending.producer_id)
            if only_known and producer is None:
                self._tell(partition, ending)  # perhaps its first batch is on its way here
                return ErrorCode.NONE
            if config.is_fenced and (producer is None or producer.txn_first_offset is None):
                # It has no records here, nor will it: a log that another cluster takes over stands still,
                # although its producers begin transaction after transaction.
                self._tell(partition, ending)
                return ErrorCode.NONE
            if ending.version >= _STRICT_FROM and producer is not None and producer.epoch >= ending.epoch:
                # Perhaps by an earlier try of this one, which not all replicas have yet.
                last = replica.log.end_offset - 1
                return _Written(
                    partition, replica, last, replica.leader_epoch, ErrorCode.INVALID_PRODUCER_EPOCH
                )
            batch = memoryview(bytearray(marker_batch(ending, self._now_ms())))
            result = replica.append(batch, all_replicas=True, origin=Origin.COORDINATOR)
        except (KafkaError, AppendRefused) as error:
            return ErrorCode(error.code)
        except LogError as error:
            logger.error("%s: no marker could be written: %s", partition, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._tell(partition, ending)
        return _Written(partition, replica, result.last_offset, replica.leader_epoch, ErrorCode.NONE)

    def _tell(self, partition: TopicPartition, ending: Ending) -> None:
        for watch in self._watched.get((partition, ending.producer_id), ()):
            watch.ended = True
            watch.epoch = max(watch.epoch, ending.epoch)


class MarkerSender:
    """Brings markers to wherever their partitions are led."""

    def __init__(self, writer: MarkerWriter, metadata: MetadataCache, listener: str) -> None:
        self._writer = writer
        self._metadata = metadata
        self._listener = listener

    async def send(
        self,
        what: str,
        ending: Ending,
        partitions: Iterable[TopicPartition],
        topic_ids: Mapping[str, bytes],
    ) -> bool:
        """Returns when every partition has its marker or is gone; False if it was fenced."""
        left = set(partitions)
        pause, told = _FIRST_PAUSE_S, False
        while left:
            answers = await self._round(ending, left, topic_ids)
            if ending.version >= _STRICT_FROM:  # the marker is there: nobody else has had this epoch yet
                answers = {
                    partition: ErrorCode.NONE if code is ErrorCode.INVALID_PRODUCER_EPOCH else code
                    for partition, code in answers.items()
                }
            codes = set(answers.values())
            if codes & FENCED:
                logger.warning("%s: markers are refused, somebody newer has taken over", what)
                return False
            left -= {partition for partition, code in answers.items() if code is ErrorCode.NONE}
            if not left:
                break
            if not told and pause >= _LONGEST_PAUSE_S:
                logger.warning("%s: %d partitions have no marker yet: %s", what, len(left), codes)
                told = True
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        return True

    async def _round(
        self, ending: Ending, left: set[TopicPartition], topic_ids: Mapping[str, bytes]
    ) -> dict[TopicPartition, ErrorCode]:
        """One try for each partition; those that are gone count as done."""
        answers: dict[TopicPartition, ErrorCode] = {}
        remote: dict[int, list[TopicPartition]] = {}
        here: list[TopicPartition] = []
        if self._metadata.topic(TRANSACTIONS_TOPIC) is None:
            return dict.fromkeys(left, ErrorCode.LEADER_NOT_AVAILABLE)  # the controller has not spoken yet
        for partition in sorted(left):
            known = self._metadata.partition(*partition)
            noted = topic_ids.get(partition.topic)
            if known is None or (noted and noted != self._metadata.topic_id(partition.topic)):
                answers[partition] = ErrorCode.NONE
            elif known.leader == NO_LEADER:
                answers[partition] = ErrorCode.LEADER_NOT_AVAILABLE
            elif known.leader == self._writer.broker_id:
                here.append(partition)
            else:
                remote.setdefault(known.leader, []).append(partition)
        # After a change of coordinator nobody knows whether the topic is still the same one.
        unsure = {partition for partition in here if topic_ids.get(partition.topic) is None}
        for found in await asyncio.gather(
            self._writer.write(here, ending, only_known=unsure),
            *(self._ask(leader, ending, theirs) for leader, theirs in remote.items()),
        ):
            answers |= found
        return answers

    async def _ask(
        self, leader: int, ending: Ending, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        endpoint = self._metadata.endpoint(leader, self._listener)
        if endpoint is None:
            return dict.fromkeys(partitions, ErrorCode.LEADER_NOT_AVAILABLE)
        security = self._metadata.peer_security
        try:
            # One of its own: on a shared one a partition without enough replicas would hold up every other
            # transaction's markers, for answers come in order (I10).
            connection = await Connection.open(
                endpoint.host,
                endpoint.port,
                client_id="transaction-markers",
                ssl=security.ssl,
                sasl=security.sasl,
                timeout_s=_SEND_TIMEOUT_S,
            )
            try:
                response = await connection.send(_request(ending, partitions))
            finally:
                await connection.close()
        except (ProtocolError, OSError) as error:
            logger.debug("no marker reached broker %d: %s", leader, error)
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        return {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
            for marker in response.markers
            for topic in marker.topics
            for each in topic.partitions
        }


def _request(ending: Ending, partitions: Iterable[TopicPartition]) -> WriteTxnMarkersRequest:
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=ending.producer_id,
                producer_epoch=ending.epoch,
                transaction_result=ending.commit,
                coordinator_epoch=ending.coordinator_epoch,
                transaction_version=ending.version,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in by_topic.items()
                ],
            )
        ]
    )
