"""Whether a transactional batch may open its producer's transaction in a partition (KIP-890, part 1).

A batch that comes after the end of its transaction would leave one that nobody ends. Only the batch that
begins one in a partition is checked, and only by a coordinator on this broker, which costs a look-up:
others would have to be asked over the network while the batch waits. Must not know requests.
"""

from __future__ import annotations

from broker.coordinator.transactions.coordinator import TransactionCoordinator
from broker.replication.partition import Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.records import read_header

TRANSACTIONAL_AT = 22
TRANSACTIONAL = 0x10
# Producers up to Produce v11 send again after this one, and know no better (Kafka answers it too).
_AGAIN = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "the transaction is not ready for this batch yet")
_RETRIED = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


def verify_member(
    coordinator: TransactionCoordinator, transactional_id: str, partition: Partition, batch: memoryview
) -> None:
    """Raise KafkaError unless the batch may be appended, as far as can be told here."""
    if not batch[TRANSACTIONAL_AT] & TRANSACTIONAL:
        return
    header = read_header(batch)
    producer = partition.log.producers.get(header.producer_id)
    if producer is not None and (
        (producer.txn_first_offset is not None and producer.epoch == header.producer_epoch)
        or partition.log.producers.duplicate(header) is not None
    ):
        return
    try:
        coordinator.verify(
            transactional_id, header.producer_id, header.producer_epoch, partition.topic_partition
        )
    except KafkaError as error:
        if error.code is ErrorCode.NOT_COORDINATOR:
            return
        if error.code in _RETRIED:
            raise _AGAIN from error
        if error.code is ErrorCode.PRODUCER_FENCED:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error
        if error.code is ErrorCode.TRANSACTION_ABORTABLE:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, error.message) from error
        raise
