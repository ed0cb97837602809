"""What a request makes of a transactional id: from one image to the next, or a refusal.

Pure functions with the time passed in. Each raises `KafkaError` with the code for the newest version of its
request; handlers turn codes into those that older versions know. Bound by KIP-98, KIP-360 (epoch bumps) and
KIP-588; Kafka's TransactionCoordinator and TransactionMetadata. How transactions of version 2 end is in
`ending_v2`. Knows neither the log nor markers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from broker.coordinator.transactions.states import ENDING, IDLE, TxnState
from broker.coordinator.transactions.transaction import (
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    Image,
    Transaction,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition

EPOCH_BUMP_FROM = 2
"""The first version of transactions in which each end raises the epoch (KIP-890, part 2)."""


def changed(image: Image, now_ms: int, **changes: Any) -> Image:
    """The next image; what the producer id is now is the last one of it."""
    return replace(image, **{"last_producer_id": image.producer_id, "update_ms": now_ms} | changes)


def initialized(
    image: Image,
    timeout_ms: int,
    expected: tuple[int, int] | None,
    fresh_id: int,
    now_ms: int,
    version: int = 0,
) -> Image:
    """A new instance of the producer takes over, or the same one asks for a new epoch (`expected` is what it
    has). From ONGOING comes the abort of the open transaction; after it the client asks again.

    `fresh_id` is used when the epochs of the present id have run out; `version` is the cluster's.
    """
    if expected is not None:
        _check_expected(image, expected)
    if image.state in ENDING:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if image.state is TxnState.ONGOING:
        return fenced(image, now_ms, version, fresh_id)
    new = changed(
        image,
        now_ms,
        timeout_ms=timeout_ms,
        state=TxnState.EMPTY,
        partitions=frozenset(),
        start_ms=NO_TIME,
    )
    if image.epoch_exhausted and (expected is None or expected[1] == image.epoch):
        return replace(
            new,
            producer_id=fresh_id,
            epoch=0,
            last_epoch=NO_EPOCH if expected is None else image.epoch,
        )
    bumped = image.epoch + 1
    if expected is None:
        return replace(new, epoch=bumped, last_epoch=NO_EPOCH)
    if image.epoch == NO_EPOCH or expected[1] == image.epoch:
        return replace(new, epoch=bumped, last_epoch=image.epoch)
    if expected[1] == image.last_epoch:  # the answer to the first try got lost
        return replace(new, last_producer_id=image.last_producer_id)
    raise KafkaError(ErrorCode.PRODUCER_FENCED, f"epoch {expected[1]}, now {image.epoch}")


def _check_expected(image: Image, expected: tuple[int, int]) -> None:
    producer_id, epoch = expected
    known = (
        image.epoch == NO_EPOCH
        or producer_id == image.producer_id
        or (producer_id == image.last_producer_id != NO_PRODUCER_ID and epoch >= MAX_EPOCH - 1)
    )
    if not known:
        raise KafkaError(ErrorCode.PRODUCER_FENCED, f"producer id {producer_id}, now {image.producer_id}")


def fenced(image: Image, now_ms: int, version: int = 0, fresh_id: int = NO_PRODUCER_ID) -> Image:
    """The abort of an open transaction whose producer shall not go on: its epoch is taken away (KIP-98).

    Where the cluster has transactions of version 2 this is an end as any other there, also for producers that
    speak an older version: the producer hears of it when it ends the transaction itself (KAFKA-19367). So it
    too gives the producer another id, `fresh_id`, when its epochs are used up.
    """
    bumps = version >= EPOCH_BUMP_FROM
    return changed(
        image,
        now_ms,
        state=TxnState.PREPARE_ABORT,
        epoch=min(image.epoch + 1, MAX_EPOCH),
        last_epoch=image.epoch if bumps else NO_EPOCH,
        next_producer_id=fresh_id if bumps and image.epoch_exhausted else NO_PRODUCER_ID,
        client_version=EPOCH_BUMP_FROM if bumps else 0,
    )


def check_producer(transaction: Transaction | None, producer_id: int, epoch: int) -> Transaction:
    """The transaction, if this producer is the one that may use it."""
    if transaction is None or transaction.image.producer_id != producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.image.epoch != epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED, f"epoch {epoch}, now {transaction.image.epoch}")
    return transaction


def extended(
    image: Image, partitions: Collection[TopicPartition], now_ms: int, client_version: int = 0
) -> Image | None:
    """Partitions join the transaction, which begins with the first; None when all are in it already."""
    if image.state in ENDING:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if image.state is TxnState.ONGOING and image.partitions.issuperset(partitions):
        return None
    return changed(
        image,
        now_ms,
        state=TxnState.ONGOING,
        partitions=image.partitions.union(partitions),
        start_ms=now_ms if image.state in IDLE else image.start_ms,
        client_version=client_version,
    )


def ended(image: Image, commit: bool, now_ms: int) -> Image | None:
    """The producer commits or aborts; None when the same has been done already (its answer got lost)."""
    if image.state is TxnState.ONGOING:
        state = TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT
        return changed(image, now_ms, state=state, client_version=0)
    if image.state is (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT):
        return None
    raise refused_end(image, commit)


def refused_end(image: Image, commit: bool) -> KafkaError:
    """Why a transaction that is not open cannot end like this."""
    if image.state is (TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT):
        return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return KafkaError(ErrorCode.INVALID_TXN_STATE, f"the transaction is {image.state.shown}")


def completed(image: Image, now_ms: int) -> Image:
    """All markers are written; a producer whose epochs are used up goes on with its next id."""
    committed = image.state is TxnState.PREPARE_COMMIT
    done = changed(
        image,
        now_ms,
        state=TxnState.COMPLETE_COMMIT if committed else TxnState.COMPLETE_ABORT,
        partitions=frozenset(),
        next_producer_id=NO_PRODUCER_ID,
    )
    if image.next_producer_id != NO_PRODUCER_ID and image.client_version >= EPOCH_BUMP_FROM:
        return replace(done, producer_id=image.next_producer_id, epoch=0)
    return done


def check_member_of(image: Image, partition: TopicPartition) -> None:
    """Raise unless the partition may be written to in the open transaction (KIP-890, part 1)."""
    if image.state in ENDING:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if image.state is not TxnState.ONGOING or partition not in image.partitions:
        raise KafkaError(
            ErrorCode.TRANSACTION_ABORTABLE, f"{partition} is in no open transaction of this producer"
        )


def has_timed_out(image: Image, now_ms: int) -> bool:
    """Whether an open transaction has lasted longer than its producer said."""
    return image.state is TxnState.ONGOING and image.start_ms + image.timeout_ms < now_ms


def has_expired(image: Image, now_ms: int, expiration_ms: int) -> bool:
    """Whether an id has been quiet for so long that it is to be forgotten."""
    return image.state in IDLE and image.update_ms + expiration_ms <= now_ms
