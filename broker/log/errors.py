"""What can go wrong with a log, one family. Each says which partition or directory, and what to do.

`AppendRefused` and `OffsetOutOfRange` are answers to a client and carry Kafka's code; the others end up
with an operator.
"""

from protocol.errors import ErrorCode


class LogError(Exception):
    """Base of everything that this package raises on purpose."""


class AppendRefused(LogError):
    """Nothing of the append was stored and the log end has not moved.

    `record_errors` names single records of the batch by index (KIP-467); empty when the whole batch is meant.
    """

    def __init__(
        self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.record_errors = record_errors or []


class OffsetOutOfRange(LogError):
    """The offset is below the log's start or above its end."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, where: str, offset: int, start: int, end: int) -> None:
        super().__init__(f"{where}: offset {offset} is outside {start}..{end}")
        self.offset = offset
        self.start = start
        self.end = end


class NotCached(LogError):
    """The bytes are not in the page cache: ask again with `blocking=True` from a thread."""


class StorageFailed(LogError):
    """The disk refused to read or write; `errno` of the cause says why."""


class CorruptLog(StorageFailed):
    """Bytes that were once written whole do not read back as record batches."""


class LogDirError(LogError):
    """A log directory cannot be used: locked, of another broker or cluster, or unreadable."""


class LogDirFailed(LogDirError):
    """The disk of a log directory fails: a broker with others goes on without it."""
