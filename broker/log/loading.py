"""Opening a partition directory: which files count, where the log ends, and what a crash left half done.

After a clean shutdown files are trusted and nothing but the ends is read. Otherwise every batch from the
recovery point on is checked, the first bad one and everything behind it is cut, and indexes, producer state
and leader epochs are made to agree with what is left. Works on a directory written by Apache Kafka as well.
"""

import logging
import os
from bisect import bisect_right
from dataclasses import dataclass

from broker.log import checkpoints, scan, snapshots
from broker.log.checkpoints import CheckpointDamaged
from broker.log.cleaner import swap
from broker.log.config import LogConfig
from broker.log.errors import CorruptLog
from broker.log.files import remove_files
from broker.log.leader_epochs import LeaderEpochs
from broker.log.producer_state import ProducerStates
from broker.log.segment import Segment
from broker.log.segment_view import MAX_RELATIVE_OFFSET
from broker.log.txn_index import truncate_aborted

log = logging.getLogger("isthmus.broker.log")

_BLOCK = 512
"""Unit of st_blocks."""
_RESERVED = 1 << 20
"""More than this beyond a file's end was reserved on purpose; file systems round up by less."""
_OF_SEGMENT = ("log", "index", "timeindex", "txnindex")


@dataclass(slots=True)
class LoadedLog:
    segments: list[Segment]
    producers: ProducerStates
    epochs: LeaderEpochs
    start_offset: int
    end_offset: int
    recovery_point: int


def load_log(
    directory: str,
    config: LogConfig,
    now_ms: int,
    *,
    recovery_point: int,
    start_offset: int,
    known_end: int,
    clean: bool,
    producer_expiration_ms: int,
) -> LoadedLog:
    """Everything that a `Log` starts from. Raises OSError when the directory cannot be read or repaired.

    A start above the log's end is believed only if another checkpoint (`known_end`) reaches it: it would
    remove all segments.
    """
    where = os.path.basename(directory)
    segments, taken = _find_segments(directory, config, now_ms)
    epochs = LeaderEpochs(f"{directory}/{checkpoints.LEADER_EPOCHS}")
    _load_epochs(epochs, segments)
    if not segments:
        segments.append(Segment.create(directory, start_offset, config, now_ms))
    end_offset = None
    if clean:
        try:
            end_offset = segments[-1].load_end()
        except CorruptLog as error:
            log.warning("%s: %s, although it was closed cleanly; checking all of it", where, error)
            recovery_point = segments[-1].base_offset
    if end_offset is None:
        end_offset = _recover(where, segments, epochs, recovery_point)
    if start_offset > max(end_offset, known_end) and any(segment.size for segment in segments):
        log.error(
            "%s: the log start checkpoint says %d, but nothing reaches it, the log ends at %d: it is not"
            " believed, the log starts at its first segment",
            where, start_offset, end_offset,
        )  # fmt: skip
        start_offset = 0
    start_offset = max(start_offset, segments[0].base_offset)
    if end_offset < start_offset:
        log.warning(
            "%s: the log ends at %d, below its start %d: it begins anew there",
            where,
            end_offset,
            start_offset,
        )
        _drop(segments)
        segments[:] = [Segment.create(directory, start_offset, config, now_ms)]
        end_offset = start_offset
    epochs.trim(start_offset, end_offset)
    producers = ProducerStates(where, producer_expiration_ms)
    snapshots.rebuild(
        directory, producers, segments, end_offset, now_ms,
        repair_from=None if clean else recovery_point, taken=taken,
    )  # fmt: skip
    return LoadedLog(
        segments,
        producers,
        epochs,
        start_offset,
        end_offset,
        end_offset if clean else min(recovery_point, end_offset),
    )


def _find_segments(directory: str, config: LogConfig, now_ms: int) -> tuple[list[Segment], list[int]]:
    """Segments in order, and offsets of snapshots, from one look at the directory. Leftovers of deletions
    and of interrupted writes are removed, strangers left alone.
    """
    found: dict[int, os.stat_result] = {}
    beside: list[tuple[int, os.DirEntry[str]]] = []
    leftovers: list[str] = []
    taken: list[int] = []
    swaps = False
    with os.scandir(directory) as entries:
        for entry in entries:
            stem, _, kind = entry.name.partition(".")
            swaps = swaps or entry.name.endswith(swap.SWAP)
            if entry.name.endswith((".deleted", ".cleaned", ".tmp")):
                leftovers.append(entry.path)
            elif len(stem) == 20 and stem.isdigit() and kind in _OF_SEGMENT:
                if kind == "log":
                    found[int(stem)] = entry.stat()
                else:
                    beside.append((int(stem), entry))
            elif len(stem) == 20 and stem.isdigit() and kind == snapshots.KIND:
                taken.append(int(stem))
    if swaps:
        swap.finish(directory, config)
        return _find_segments(directory, config, now_ms)
    leftovers += [entry.path for base, entry in beside if base not in found]
    remove_files(leftovers)
    segments = [
        Segment(directory, base, size=found[base].st_size, config=config, now_ms=now_ms)
        for base in sorted(found)
    ]
    for segment in segments:
        if not segment.size and not any(
            entry.stat().st_size for base, entry in beside if base == segment.base_offset
        ):
            segment.without_indexes()
    _give_back(segments, found)
    return segments, sorted(taken)


def _give_back(segments: list[Segment], found: dict[int, os.stat_result]) -> None:
    """What `preallocate` reserved before a crash."""
    for segment in segments:
        status = found[segment.base_offset]
        if status.st_blocks * _BLOCK - status.st_size > _RESERVED:
            segment.preallocated = True
            segment.trim()
            segment.release_file()


def _load_epochs(epochs: LeaderEpochs, segments: list[Segment]) -> None:
    try:
        epochs.load()
    except CheckpointDamaged as error:
        log.warning("%s; taking the leader epochs from the batches", error)
    if epochs.latest >= 0 or not any(segment.size for segment in segments):
        return
    for segment in segments:
        for _, header in scan.headers(segment.file, 0, segment.size):
            epochs.note(header.leader_epoch, header.base_offset)
    epochs.save()


def _recover(where: str, segments: list[Segment], epochs: LeaderEpochs, recovery_point: int) -> int:
    """Check everything from the recovery point on, cut what is bad; returns the log end."""
    at = max(0, bisect_right([segment.base_offset for segment in segments], recovery_point) - 1)
    next_offset = segments[at].base_offset
    before = epochs.entries()
    while at < len(segments):
        segment = segments[at]
        at += 1
        next_base = segments[at].base_offset if at < len(segments) else None
        next_offset, cut = _recover_segment(
            segment, epochs, max(next_offset, segment.base_offset), recovery_point, next_base
        )
        if not cut:
            continue
        behind = segments[at:]
        log.warning(
            "%s: cut %d bytes that are no whole, sound batches, from offset %d on"
            " (file %020d.log at byte %d%s)",
            where, cut + sum(s.size for s in behind), next_offset, segment.base_offset, segment.size,
            f", and {len(behind)} segments behind it" if behind else "",
        )  # fmt: skip
        _drop(behind)
        del segments[at:]
    if epochs.entries() != before:
        epochs.save()
    return next_offset


def _recover_segment(
    segment: Segment, epochs: LeaderEpochs, next_offset: int, recovery_point: int, next_base: int | None
) -> tuple[int, int]:
    """(next offset, bytes cut) after checking the part of the segment at and above the recovery point."""
    on_disk = segment.size
    highest = segment.base_offset + MAX_RELATIVE_OFFSET if next_base is None else next_base - 1
    start = 0
    try:
        if segment.base_offset < recovery_point:
            start = segment.find(recovery_point)
            next_offset = segment.rewind(start, recovery_point)
        else:
            segment.rewind(0, segment.base_offset)
    except CorruptLog:  # not even the part below the recovery point reads: take what does
        start = 0
        next_offset = segment.base_offset
        segment.rewind(0, next_offset)
    sound = scan.sound_batches(segment.file, start, on_disk, next_offset, highest) if on_disk else ()
    for _, header, _ in sound:
        segment.note(header.last_offset, header.max_timestamp, header.size)
        epochs.note(header.leader_epoch, header.base_offset)
        next_offset = header.next_offset
    cut = on_disk - segment.size
    if cut:
        segment.file.truncate(segment.size)
        truncate_aborted(segment.path("txnindex"), next_offset)
    segment.save_indexes(closing=next_base is not None)
    return next_offset, cut


def _drop(segments: list[Segment]) -> None:
    for segment in segments:
        segment.release()
        remove_files([segment.path(kind) for kind in _OF_SEGMENT])
