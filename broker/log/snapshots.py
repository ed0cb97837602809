"""Producer snapshots of a partition directory, and the way from them to the producer state at an offset.

A snapshot is taken when a segment is rolled and when the log is closed. Recovery takes the newest that is
whole and not above the log end, and replays batch headers from there on.
"""

import logging
import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from broker.log.checkpoints import CheckpointDamaged
from broker.log.errors import CorruptLog
from broker.log.files import read_if_exists, remove_files, replace_file
from broker.log.markers import ends_producers, read_marker
from broker.log.producer_snapshot import decode_snapshot, encode_snapshot
from broker.log.producer_state import ProducerStates
from broker.log.segment import Segment
from broker.log.txn_index import AbortedTxn, append_aborted, truncate_aborted
from protocol.errors import DecodeError

log = logging.getLogger("isthmus.broker.log")

KIND: Final = "snapshot"
_SUFFIX = f".{KIND}"


def _offsets(directory: str) -> list[int]:
    stems = (name[: -len(_SUFFIX)] for name in os.listdir(directory) if name.endswith(_SUFFIX))
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdigit())


def _path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}{_SUFFIX}"


def take(directory: str, producers: ProducerStates, end_offset: int) -> None:
    """Write the state at the log end, unless it is there already. Raises OSError."""
    taken = _offsets(directory)
    if end_offset and (not taken or taken[-1] != end_offset):
        # Not synced: its checksum tells what a power cut left of it, and the one before it does as well.
        data = encode_snapshot(producers.to_snapshot())
        replace_file(_path(directory, end_offset), data, sync=False)


def prune(directory: str, segment_starts: Iterable[int]) -> None:
    """Keep the newest and those at segment starts, from which recovery may have to begin."""
    wanted = set(segment_starts)
    remove_files([_path(directory, at) for at in _offsets(directory)[:-1] if at not in wanted])


def drop(directory: str) -> None:
    """For a log that begins anew: what producers had open in what is gone never ends here."""
    remove_files([_path(directory, at) for at in _offsets(directory)])


def rebuild(
    directory: str,
    producers: ProducerStates,
    segments: Sequence[Segment],
    end_offset: int,
    now_ms: int,
    *,
    repair_from: int | None = None,
    taken: Sequence[int] | None = None,
) -> None:
    """Bring `producers` to the state at the log end. Snapshots above it, or damaged, are removed. `taken`
    are the snapshots' offsets, rising, where they are known.

    After a crash, `repair_from` is the offset from which on nothing beside the batches is trusted: the replay
    starts there or before, and writes the aborted-transaction indexes again. Raises `CorruptLog`, OSError.
    """
    producers.clear()
    trusted = end_offset if repair_from is None else min(repair_from, end_offset)
    known = _offsets(directory) if taken is None else taken
    newest = _load_newest(directory, producers, trusted, end_offset, now_ms, known)
    offset = max(newest, segments[0].base_offset)
    at = max(0, bisect_right([segment.base_offset for segment in segments], offset) - 1)
    for segment in segments[at:]:
        if offset < end_offset:
            _replay(
                segment, max(offset, segment.base_offset), producers, now_ms, repair=repair_from is not None
            )


def _load_newest(
    directory: str,
    producers: ProducerStates,
    trusted: int,
    end_offset: int,
    now_ms: int,
    taken: Sequence[int],
) -> int:
    """Offset of the snapshot that was loaded, 0 for none."""
    for taken_at in reversed(taken):
        path = _path(directory, taken_at)
        if taken_at > end_offset:
            remove_files([path])
        elif taken_at <= trusted:
            try:
                producers.load_snapshot(decode_snapshot(read_if_exists(path) or b"", path), now_ms)
                return taken_at
            except CheckpointDamaged as error:
                log.warning("%s; going on without it", error)
                remove_files([path])
    return 0


def _replay(segment: Segment, offset: int, producers: ProducerStates, now_ms: int, *, repair: bool) -> None:
    if repair:
        truncate_aborted(segment.path("txnindex"), offset)
    for position, header in segment.batches_from(offset):
        if header.producer_id < 0 and not header.is_control:
            continue
        if not header.is_control:
            producers.update(header, header.base_offset, now_ms)
            continue
        batch = memoryview(segment.file.read(position, header.size))
        try:
            if ends_producers(batch, 0, header):
                producers.end_all()
                continue
            marker = read_marker(batch, 0, header) if header.producer_id >= 0 else None
        except DecodeError as error:
            raise CorruptLog(f"{segment.path('log')}: {error}") from None
        if marker is None:
            continue
        done = producers.end_transaction(
            header,
            header.base_offset,
            coordinator_epoch=marker.coordinator_epoch,
            commit=marker.commit,
            now_ms=now_ms,
        )
        if done is not None and done.aborted and repair:
            stable = producers.stable_after(done)
            append_aborted(
                segment.path("txnindex"),
                AbortedTxn(done.producer_id, done.first_offset, done.last_offset, stable),
            )
