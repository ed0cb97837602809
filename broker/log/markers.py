"""Control batches: those that end a transaction, and the one that ends a mirror.

Key: version int16, type int16 (0 abort, 1 commit). Value: version int16, coordinator epoch int32. (KIP-98;
Kafka's EndTransactionMarker.) A type of our own, far behind Kafka's, says that whatever is remembered of
producers ends here: they are another cluster's. Clients pass over control records that they do not know.
"""

from struct import Struct, error
from typing import Final, NamedTuple

from protocol.errors import DecodeError
from protocol.records import BatchHeader, Record, build_batch, read_records

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1
_PRODUCERS_END: Final = 1000


class Marker(NamedTuple):
    commit: bool
    coordinator_epoch: int


def read_marker(batch: memoryview, pos: int, header: BatchHeader) -> Marker | None:
    """The marker in the control batch at `pos`; None for control records of other kinds, which are to be
    ignored.

    Raises `DecodeError`.
    """
    record = next(read_records(batch, pos, header), None)
    if record is None:  # compaction empties a batch but keeps its header
        return None
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (_ABORT, _COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except error:
        raise DecodeError(
            f"control batch at offset {header.base_offset} holds no transaction marker"
        ) from None
    return Marker(kind == _COMMIT, coordinator_epoch)


def producers_end_batch(now_ms: int) -> bytearray:
    """The control batch behind which all producers are unknown again; it belongs to none of them."""
    record = Record(offset=0, timestamp=now_ms, key=_KEY.pack(0, _PRODUCERS_END), value=b"")
    return bytearray(build_batch([record], control=True))


def ends_producers(batch: memoryview, pos: int, header: BatchHeader) -> bool:
    """Whether the batch at `pos` is one of those."""
    if header.producer_id >= 0 or not header.is_control:
        return False
    record = next(read_records(batch, pos, header), None)
    key = b"" if record is None else record.key or b""
    return len(key) == _KEY.size and _KEY.unpack(key)[1] == _PRODUCERS_END
