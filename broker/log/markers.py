"""Control batches that end a transaction (KIP-98; Kafka's EndTransactionMarker).

Key: version int16, type int16 (0 abort, 1 commit). Value: version int16, coordinator epoch int32.
"""

from struct import Struct, error
from typing import Final, NamedTuple

from protocol.errors import DecodeError
from protocol.records import BatchHeader, read_records

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1


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
