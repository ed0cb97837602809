"""What an error of the operating system says about a disk: whether it failed, is full, or is not to blame.

One table for everybody who meets an OSError on a log directory. A disk that failed is taken out of use
(KIP-112); one that is full does its work again as soon as there is room, so it stays in use, unlike in Kafka,
which takes any IOException of a log for a failed directory (Kafka: `LogDirFailureChannel`,
`KafkaStorageException`).
"""

import errno
from typing import Final

FAILED: Final = frozenset(
    {errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.EUCLEAN, errno.EREMOTEIO}
)
"""The disk itself does not work."""
GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM})
"""While running: somebody took the directory away. At start it may be one partition's own trouble."""
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Of the whole directory, not of one partition; the other directories have their own room."""
EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Of the process or the machine: no directory is at fault."""


def is_full(error: BaseException | None) -> bool:
    """Whether there was no room; looks at the cause of an error of ours as well."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error is not None and error.errno in FULL
