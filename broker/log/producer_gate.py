"""What an append means for the producers of its batches: refused, known already, or to be remembered.

Sits between the batches of one append and `ProducerStates`; knows nothing of files but the
aborted-transaction index.
"""

from broker.log.errors import AppendRefused
from broker.log.incoming import Batches, Origin
from broker.log.markers import Marker, ends_producers, read_marker
from broker.log.producer_state import CompletedTxn, ProducerStates, SeenBatch
from broker.log.segment import Segment
from broker.log.txn_index import AbortedTxn, append_aborted
from protocol.errors import DecodeError, ErrorCode
from protocol.records import BatchHeader


def check_producers(
    producers: ProducerStates, view: memoryview, found: Batches, origin: Origin
) -> SeenBatch | None:
    """Refuse holes, old epochs and forged markers; a batch that was stored before is returned instead.

    Raises `AppendRefused`.
    """
    pending: dict[int, tuple[int, int]] = {}
    for at, (pos, header) in enumerate(found):
        if header.producer_id < 0:
            continue
        if header.is_control:
            marker = _marker(producers.where, view, pos, header)
            if marker is not None:
                producers.check_marker(header, marker.coordinator_epoch)
            continue
        if origin is Origin.COORDINATOR:
            producers.check_epoch(header)  # its sequences mean nothing
        if origin is not Origin.CLIENT:
            continue
        seen = producers.duplicate(header)
        if seen is not None:
            if len(found) == 1:
                return seen
            raise AppendRefused(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                f"{producers.where}: batch {at} of {len(found)} was stored before,"
                f" at offset {seen.first_offset}",
            )
        producers.check(header, pending.get(header.producer_id))
        if len(found) > 1:
            pending[header.producer_id] = (header.producer_epoch, header.last_sequence)
    return None


def _marker(where: str, view: memoryview, pos: int, header: BatchHeader) -> Marker | None:
    try:
        return read_marker(view, pos, header)
    except DecodeError as error:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"{where}: {error}") from None


def aborted_by(producers: ProducerStates, view: memoryview, found: Batches, offset: int) -> AbortedTxn | None:
    """What a single marker that is to be stored at `offset` aborts; None for everything else."""
    pos, header = found[0]
    if len(found) > 1 or not header.is_control or header.producer_id < 0:
        return None
    marker, producer = read_marker(view, pos, header), producers.get(header.producer_id)
    if marker is None or marker.commit or producer is None or producer.txn_first_offset is None:
        return None
    done = CompletedTxn(header.producer_id, producer.txn_first_offset, offset, aborted=True)
    return AbortedTxn(done.producer_id, done.first_offset, offset, producers.stable_after(done))


def note_producer(
    producers: ProducerStates,
    segment: Segment | None,
    view: memoryview,
    pos: int,
    header: BatchHeader,
    offset: int,
    now_ms: int,
) -> None:
    """A batch was stored at `offset`: remember its sequence, or that its transaction has ended.

    `segment` takes the entry of the aborted-transaction index, None where that is written already. Raises
    OSError for it.
    """
    if header.producer_id < 0:
        if header.is_control and ends_producers(view, pos, header):
            producers.end_all()
        return
    if not header.is_control:
        producers.update(header, offset, now_ms)
        return
    marker = read_marker(view, pos, header)
    if marker is None:
        return
    done = producers.end_transaction(
        header, offset, commit=marker.commit, coordinator_epoch=marker.coordinator_epoch, now_ms=now_ms
    )
    if done is not None and done.aborted and segment is not None:
        stable = producers.stable_after(done)
        segment.aborted_nothing = False
        append_aborted(
            segment.path("txnindex"),
            AbortedTxn(done.producer_id, done.first_offset, done.last_offset, stable),
        )
