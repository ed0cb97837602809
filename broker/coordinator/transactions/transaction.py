"""What is known of one transactional id: the image that is stored, and what stands around it.

Plain state. `Image` is what a record of `__transaction_state` says; every change makes a new one that
counts once its record is safe. `Transaction` adds what is not stored: the change under way and the
connections that speak for the producer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from broker.coordinator.transactions.states import MOVES, TxnState
from protocol.types import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
MAX_EPOCH: Final = 32_767
_REMEMBERED: Final = 8


@dataclass(frozen=True, slots=True)
class Image:
    """Times are epoch milliseconds. `last_epoch` and `last_producer_id` are what the producer had before the
    last change: its repetition, when the answer got lost, is known by them (KIP-360, KIP-890).

    `client_version` is the version of transactions (`transaction.version`) that the producer speaks;
    `next_producer_id` is what it goes on with after an end that has used up the epochs of the present id.
    """

    producer_id: int
    epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TxnState = TxnState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    update_ms: int = NO_TIME
    last_epoch: int = NO_EPOCH
    last_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def epoch_exhausted(self) -> bool:
        """The last epoch is kept for fencing, so a new instance needs a new producer id before it."""
        return self.epoch >= MAX_EPOCH - 1


@dataclass(slots=True)
class Transaction:
    """One transactional id. `pending` is the image being written, None most of the time."""

    transactional_id: str
    image: Image
    pending: Image | None = None
    #: Topic ids of the partitions, where they were added since this broker coordinates.
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    _connection: object | None = None
    _superseded: list[object] = field(default_factory=list)

    def accept(self) -> None:
        """The pending image is safe and counts from now on."""
        assert self.pending is not None
        assert self.image.state in MOVES[self.pending.state]
        self.image, self.pending = self.pending, None
        if not self.image.partitions:
            self.topic_ids.clear()

    def forget_partitions(self, gone: frozenset[TopicPartition]) -> None:
        """Partitions were deleted: nothing is left in them to commit or to abort."""
        self.image = replace(self.image, partitions=self.image.partitions - gone)
        if self.pending is not None:
            self.pending = replace(self.pending, partitions=self.pending.partitions - gone)
        for topic in {partition.topic for partition in gone}:
            self.topic_ids.pop(topic, None)

    def is_stale(self, connection: object) -> bool:
        """Whether the producer has spoken over a newer connection since it used this one.

        Clients keep one connection to a coordinator and open another when the first has failed them. What
        still comes over the first was sent before, however late it is read (KAFKA-17754).
        """
        if connection is self._connection:
            return False
        if any(connection is old for old in self._superseded):
            return True
        if self._connection is not None:
            self._superseded = [*self._superseded[1 - _REMEMBERED :], self._connection]
        self._connection = connection
        return False
