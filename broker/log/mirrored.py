"""What a mirror takes: batches as another cluster's log has them, behind the end that it has.

Owns the checks that the mirror's own leader needs before it appends like a follower: nothing twice, nothing
of an older leader epoch than what is there (a history that the source has left), and no epoch that the
leader's own term does not stand above. Knows nothing of links. (Kafka has none of this yet: KIP-1279.)
"""

from broker.log.config import LogConfig
from broker.log.errors import AppendRefused
from protocol.errors import DecodeError, ErrorCode
from protocol.records import iter_headers


def read_only(where: str, config: LogConfig) -> AppendRefused:
    """What writers hear. The code is none that a client tries again."""
    if config.is_fenced:
        return AppendRefused(
            ErrorCode.POLICY_VIOLATION,
            f"{where} is {config.isthmus_mirror_source}: another cluster takes over, write there",
        )
    return AppendRefused(
        ErrorCode.POLICY_VIOLATION,
        f"{where} is a mirror of {config.isthmus_mirror_source} and read-only until that ends"
        " (isthmus mirrors promote, or failover)",
    )


def check_mirrored(where: str, view: memoryview, *, log_end: int, last_epoch: int, leader_epoch: int) -> int:
    """Offset of the first batch. Offsets and epochs of all fit behind the log; `leader_epoch` is above them.

    Raises `AppendRefused`: FENCED_LEADER_EPOCH for an epoch older than the log's last one,
    UNKNOWN_LEADER_EPOCH where the leader's own term has to be raised first.
    """
    first, epoch = -1, last_epoch
    try:
        for _, header in iter_headers(view):
            if first < 0:
                first = header.base_offset
            if header.leader_epoch < epoch:
                raise AppendRefused(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"{where}: the batch at {header.base_offset} is of leader epoch {header.leader_epoch},"
                    f" the mirror has gone on in {epoch}",
                )
            epoch = header.leader_epoch
    except DecodeError as error:
        raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"{where}: {error}") from None
    if first < 0:
        raise AppendRefused(ErrorCode.INVALID_RECORD, f"{where}: no record batch was sent")
    if epoch >= leader_epoch:
        raise AppendRefused(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{where}: the source is in leader epoch {epoch}, this term {leader_epoch} has to be later",
        )
    if first < log_end:
        raise AppendRefused(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{where}: the first batch begins at {first}, the mirror goes on at {log_end}",
        )
    return first
