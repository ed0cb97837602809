"""Putting a cleaned segment in the place of those it was made from, so that a crash leaves old or new.

Owns the order of renames and what a start makes of it (Kafka's `LocalLog.replaceSegments`, `LogLoader`):
`.cleaned` is unfinished and worth nothing. A set of files is `.swap` as a whole only when no `.cleaned` of
its offset is left, and then the old segments in its range have to go. The last batch of a cleaned segment
reaches to the end of the range (the cleaner keeps its header), so the file itself says which ones these are.
Does not know how segments are cleaned.
"""

import contextlib
import logging
import os
from collections.abc import Sequence
from typing import Final

from broker.log.config import LogConfig
from broker.log.files import remove_files, sync_directory
from broker.log.segment import Segment
from broker.log.segment_list import SegmentList

log = logging.getLogger("isthmus.broker.log")

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
_KINDS: Final = ("txnindex", "timeindex", "index", "log")
"""Renamed in this order: the data file comes last, so its name says that all are there."""


class SwapNotBegun(OSError):
    """The cleaned segment could not be named; its originals are as they were and it is gone."""


def replace(segments: SegmentList, old: Sequence[Segment], cleaned: Segment, due_ms: int) -> None:
    """Swap the finished segment `cleaned` (its files end in `.cleaned`) in for its originals.

    A few renames, no waiting for the disk: content was synced before. Raises `SwapNotBegun` when nothing has
    changed (a name may need room as well), another OSError when what is half done has to be finished or taken
    back by the next start.
    """
    try:
        cleaned.retire(_KINDS, SWAP)
    except OSError as error:
        _remove(cleaned, (CLEANED, SWAP))
        raise SwapNotBegun(error.errno, error.strerror) from error
    try:
        segments.replace(old, cleaned, due_ms, lambda: _put(cleaned))
    except OSError as error:
        if isinstance(error.__cause__, OSError):
            raise
        _remove(cleaned, (SWAP,))
        raise SwapNotBegun(error.errno, error.strerror) from error


def _put(cleaned: Segment) -> None:
    # The data file last again: while it is `.swap`, a start knows that this is not finished.
    try:
        cleaned.retire(_KINDS, "")
    except OSError:
        stem = f"{cleaned.directory}/{cleaned.base_offset:020d}"
        for kind in _KINDS:  # its originals have other names for now, and get these back
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{stem}.{kind}", f"{stem}.{kind}{SWAP}")
        raise


def _remove(cleaned: Segment, suffixes: Sequence[str]) -> None:
    stem = f"{cleaned.directory}/{cleaned.base_offset:020d}"
    remove_files([f"{stem}.{kind}{suffix}" for kind in _KINDS for suffix in suffixes])


def remove_unfinished(directory: str) -> None:
    """What a cleaning has left that goes no further: nobody else removes it, and it takes room."""
    _, unfinished = _left_over(directory)
    remove_files([f"{directory}/{base:020d}.{kind}{CLEANED}" for base in unfinished for kind in _KINDS])


def finish(directory: str, config: LogConfig) -> None:
    """After a crash: complete or take back what `replace` began. Raises OSError."""
    swaps, unfinished = _left_over(directory)
    whole = {base for base in swaps if not unfinished or base < min(unfinished)}
    remove_files([f"{directory}/{base:020d}.{kind}{SWAP}" for base in swaps - whole for kind in _KINDS])
    for base in sorted(whole):
        _finish_one(directory, base, config)
    remove_files([f"{directory}/{base:020d}.{kind}{CLEANED}" for base in unfinished for kind in _KINDS])
    sync_directory(directory)


def _left_over(directory: str) -> tuple[set[int], set[int]]:
    """Base offsets of `.swap` and of `.cleaned` files."""
    swaps: set[int] = set()
    unfinished: set[int] = set()
    for name in os.listdir(directory):
        stem = name.partition(".")[0]
        if len(stem) == 20 and stem.isdigit():
            if name.endswith(SWAP):
                swaps.add(int(stem))
            elif name.endswith(CLEANED):
                unfinished.add(int(stem))
    return swaps, unfinished


def _finish_one(directory: str, base: int, config: LogConfig) -> None:
    swapped = f"{directory}/{base:020d}.log{SWAP}"
    if os.path.exists(swapped):
        new = Segment(directory, base, size=os.path.getsize(swapped), config=config, now_ms=0, suffix=SWAP)
        end = base
        for _, header in new.batches_from(base):
            end = header.next_offset
        new.release()
        gone = sorted(at for at in _segments(directory) if base <= at < end)
        log.warning(
            "%s: finishing the swap of a cleaned segment at offset %d that a crash interrupted, %d left to"
            " replace", os.path.basename(directory), base, len(gone),
        )  # fmt: skip
        remove_files([f"{directory}/{at:020d}.{kind}" for at in gone for kind in _KINDS])
    # Without a data file of this name the swap was over but for an index: the old ones are gone.
    for kind in _KINDS:
        path = f"{directory}/{base:020d}.{kind}"
        with contextlib.suppress(FileNotFoundError):
            os.rename(path + SWAP, path)


def _segments(directory: str) -> list[int]:
    stems = (name[:20] for name in os.listdir(directory) if name.endswith(".log") and len(name) == 24)
    return [int(stem) for stem in stems if stem.isdigit()]
