"""How a transaction of version 2 ends (KIP-890, part 2): each end raises the producer's epoch.

So a repeated EndTxn carries the epoch before the present one and is told apart from the next transaction's,
however late it comes. An abort is allowed where nothing was begun: a producer that does not know whether its
first batch has arrived has to be able to say so. When the epochs of a producer id are used up, the end gives
the producer another id, which counts once the markers are written. Pure functions (Kafka's
TransactionCoordinator.endTransaction has the table of what is allowed).
"""

from __future__ import annotations

from typing import NamedTuple

from broker.coordinator.transactions.rules import EPOCH_BUMP_FROM, changed, refused_end
from broker.coordinator.transactions.states import ENDING, TxnState
from broker.coordinator.transactions.transaction import MAX_EPOCH, NO_PRODUCER_ID, Image
from protocol.errors import ErrorCode, KafkaError

_LAST_GIVEN = MAX_EPOCH - 1
"""The highest epoch that a producer ever has; the one above it is only seen in markers."""


class Next(NamedTuple):
    """What the producer goes on with."""

    producer_id: int
    epoch: int


def is_repetition(image: Image, producer_id: int, epoch: int) -> bool:
    """Whether this end has been decided before. Raises `KafkaError` for a producer that may not end it."""
    rotated = image.last_producer_id == producer_id and epoch == _LAST_GIVEN and image.epoch == 0
    if image.producer_id != producer_id and not rotated:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    repeated = rotated or image.epoch == epoch + 1
    current = image.producer_id == producer_id and image.epoch == epoch
    if image.state in (TxnState.ONGOING, TxnState.EMPTY):
        allowed = current
        repeated = False
    else:
        allowed = repeated or current
    if not allowed:
        raise KafkaError(ErrorCode.PRODUCER_FENCED, f"epoch {epoch}, now {image.epoch}")
    return repeated


def ended(image: Image, repeated: bool, commit: bool, fresh_id: int, now_ms: int) -> Image | None:
    """The producer commits or aborts; None when that was done already.

    `repeated` is what `is_repetition` says; `fresh_id` is used when the epochs of the present id have run
    out. Raises `KafkaError`.
    """
    if image.state is TxnState.ONGOING:
        return _decided(image, commit, fresh_id, now_ms)
    if image.state in ENDING:
        if not repeated:  # the end of what comes next; Kafka fences the producer for its haste
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        raise refused_end(image, commit)
    if repeated and image.state is (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT):
        return None
    if repeated or commit:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"the transaction is {image.state.shown}")
    return _decided(image, False, fresh_id, now_ms)


def _decided(image: Image, commit: bool, fresh_id: int, now_ms: int) -> Image:
    began = image.state is TxnState.ONGOING
    return changed(
        image,
        now_ms,
        state=TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT,
        epoch=min(image.epoch + 1, MAX_EPOCH),
        last_epoch=image.epoch,
        start_ms=image.start_ms if began else now_ms,
        next_producer_id=fresh_id if image.epoch_exhausted else NO_PRODUCER_ID,
        client_version=EPOCH_BUMP_FROM,
    )


def successor(image: Image) -> Next:
    """What the producer goes on with, while the markers of this end may still be on their way."""
    if image.next_producer_id != NO_PRODUCER_ID:
        return Next(image.next_producer_id, 0)
    return Next(image.producer_id, image.epoch)
