"""Rows of transactions that are not decided yet, in one of a link's own topics: plain state, no I/O.

Owns which rows count once a batch is read: those of a transaction at its marker, or never (KIP-98), and of
two transactions that overlap the row with the higher offset, whichever marker comes first, because that is
the row that compaction keeps. It must not know what rows mean or how they are read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from protocol.records.header import BatchHeader
from protocol.records.reading import read_records

Row = tuple[bytes, bytes | None]

_COMMIT_MARKER = b"\0\1"


@dataclass(slots=True)
class _Open:
    first: int
    rows: dict[bytes, tuple[int, bytes | None]] = field(default_factory=dict)


class OpenTransactions:
    """Of one topic, as far as it was read."""

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}
        """By producer id."""
        self._newest: dict[bytes, int] = {}
        """Offsets of committed rows that an open transaction's older rows must not replace."""

    def copy(self) -> OpenTransactions:
        """To read on with, and to be thrown away when reading fails."""
        copied = OpenTransactions()
        copied._open = {producer: replace(one, rows=dict(one.rows)) for producer, one in self._open.items()}
        copied._newest = dict(self._newest)
        return copied

    def settled(self, buf: memoryview, at: int, header: BatchHeader, first: int) -> list[Row]:
        """What counts once this batch is read, without records before offset `first`: its own rows, or with a
        marker those of the transaction that it ends."""
        if header.is_control:
            keys = [record.key or b"" for record in read_records(buf, at, header)]
            return self._ended(header.producer_id, commit=bool(keys) and keys[0][2:4] == _COMMIT_MARKER)
        rows = [
            (record.offset, record.key, record.value)
            for record in read_records(buf, at, header)
            if record.offset >= first and record.key is not None
        ]
        if not header.is_transactional:
            return [(key, value) for _, key, value in rows]
        if rows:  # the cleaner may leave a batch without records behind, and take its marker away
            one = self._open.setdefault(header.producer_id, _Open(rows[0][0]))
            one.rows.update((key, (offset, value)) for offset, key, value in rows)
        return []

    def holding(self, key: bytes) -> tuple[int, int] | None:
        """Producer id and first offset of an open transaction with a row of that key."""
        for producer, one in self._open.items():
            if key in one.rows:
                return producer, one.first
        return None

    def _ended(self, producer: int, *, commit: bool) -> list[Row]:
        ended = self._open.pop(producer, None)
        rows: list[Row] = []
        if ended is not None and commit:
            for key, (offset, value) in ended.rows.items():
                if offset > self._newest.get(key, -1):
                    rows.append((key, value))
                    self._newest[key] = offset
        oldest = min((one.first for one in self._open.values()), default=None)
        if oldest is None:
            self._newest.clear()
        else:
            self._newest = {key: offset for key, offset in self._newest.items() if offset > oldest}
        return rows
