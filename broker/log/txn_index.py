"""Aborted transactions of one segment (KIP-98; Kafka's TransactionIndex, `.txnindex`).

Written only when there is one, at the offset of its abort marker. An entry is 34 bytes: version int16,
producer id, first and last offset of the transaction, and the last stable offset at that time, all int64.
Readers with read_committed drop what these transactions wrote.
"""

import contextlib
import os
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from broker.log.files import read_if_exists

_ENTRY: Final = Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@contextlib.contextmanager
def indexed(path: str, txn: AbortedTxn) -> Iterator[None]:
    """Write the entry, and take it back should what is written inside fail. Raises OSError."""
    append_aborted(path, txn)
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError):
            truncate_aborted(path, txn.last_offset)
        raise


def append_aborted(path: str, txn: AbortedTxn) -> None:
    """All or nothing. Raises OSError."""
    data = _ENTRY.pack(0, *txn)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        end = os.fstat(fd).st_size
        try:
            done = os.write(fd, data)
            while done < len(data):  # the next try says why
                done += os.write(fd, data[done:])
        except OSError:
            os.ftruncate(fd, end)
            raise
    finally:
        os.close(fd)


def read_aborted(path: str) -> list[AbortedTxn]:
    """Entries in the order of their markers; a torn last entry is left out."""
    data = read_if_exists(path) or b""
    whole = len(data) // _ENTRY.size * _ENTRY.size
    return [AbortedTxn(*fields[1:]) for fields in _ENTRY.iter_unpack(data[:whole])]


def truncate_aborted(path: str, end_offset: int) -> None:
    """Drop entries whose marker is at or after `end_offset`."""
    kept = [txn for txn in read_aborted(path) if txn.last_offset < end_offset]
    try:
        os.truncate(path, len(kept) * _ENTRY.size)
    except FileNotFoundError:
        return
