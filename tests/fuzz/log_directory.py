"""A log directory with random damage in files of every kind: it opens, and serves nothing but the truth.

Input: damage, 12 bytes each: which file, what to do, where, with what. A directory is made once (segments,
indexes, snapshots, checkpoints, transactions, a partition that was compacted), copied and damaged.
Promised: `LogManager.load` ends, with `LogDirError` only where the file that says whose the directory is was
hit; what a batch with a right checksum holds is what was written; what stands before the first damaged byte
of the log files is served, unless a file that may take records away (checkpoints of offsets) was hit too.
"""

from __future__ import annotations

import fnmatch
import functools
import logging
import tempfile
from contextlib import suppress
from pathlib import Path

from broker.log import LogConfig, LogDirError, LogManager
from broker.log.errors import LogError
from broker.log.incoming import Origin
from protocol.errors import ProtocolError
from protocol.records import Record, build_batch, iter_headers, read_records
from protocol.records.compression import Codec
from protocol.records.header import check_crc
from protocol.types import TopicPartition, new_topic_id
from tests.support.batches import marker
from tests.support.clock import VirtualClock

TP = TopicPartition("fuzzed", 0)
OTHER = TopicPartition("other", 0)
BATCHES = 60
_DAMAGE = 12
_MOST = 6
"""Damages of one input."""
_CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=256, segment_index_bytes=1024)
_MAY_REFUSE = ("meta.properties", "partition.metadata")
_MAY_DROP = ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown")


class Master:
    """The undamaged directory: its bytes by file name, and what its records are."""

    def __init__(self, clean: bool) -> None:
        self.clean = clean
        self.files: dict[str, bytes] = {}
        self.truth: dict[int, tuple[bytes, ...]] = {}
        self.places: list[tuple[str, int, int]] = []
        """(file, end position, base offset) of each batch, in order."""
        with _scratch() as name:
            self._make(Path(name))

    def _make(self, root: Path) -> None:
        logs = LogManager([root], 1, "fuzz", VirtualClock())
        logs.load(lambda topic: _CONFIG)
        log = logs.get_or_create(TP, new_topic_id(), _CONFIG)
        logs.get_or_create(OTHER, new_topic_id(), _CONFIG).append(_batch(0), 0)
        for number in range(BATCHES):
            if number == BATCHES // 2:
                log.flush()  # the recovery point of an unclean end
            if number % 10 == 9:
                log.append(marker(7, 0, commit=number % 20 == 9), number // 20, Origin.COORDINATOR)
                continue
            log.append(_batch(number, transactional=number % 10 == 8, sequence=number // 10), number // 20)
        log.high_watermark = log.end_offset
        logs.checkpoint_tick()
        if self.clean:
            logs.close()
        else:
            log.segments.active.save_indexes(closing=False)
            log.release()
            logs._unlock()  # as a kill would
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.name != ".lock":
                self.files[str(path.relative_to(root))] = path.read_bytes()
        for name in sorted(fnmatch.filter(self.files, f"{TP}/*.log")):
            for pos, header in iter_headers(self.files[name]):
                self.places.append((name, pos + header.size, header.base_offset))
                records = read_records(self.files[name], pos, header)
                self.truth[header.base_offset] = tuple(record.value or b"" for record in records)


def _batch(number: int, transactional: bool = False, sequence: int = 0) -> memoryview:
    time_ms = 1_700_000_000_000 + number
    records = [Record(at, time_ms, b"k%d" % at, b"%d.%d" % (number, at)) for at in range(5)]
    data = build_batch(
        records,
        codec=Codec(number % 5),
        producer_id=7 if transactional else -1,
        producer_epoch=0 if transactional else -1,
        base_sequence=sequence * 5 if transactional else -1,
        transactional=transactional,
    )
    return memoryview(bytearray(data))


@functools.cache
def master(clean: bool) -> Master:
    return Master(clean)


def _scratch() -> tempfile.TemporaryDirectory[str]:
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    return tempfile.TemporaryDirectory(prefix="fuzz-log-", dir=folder)


def one(data: bytes) -> None:
    logging.disable(logging.CRITICAL)  # thousands of lines about damage that is wanted
    try:
        _one(data)
    finally:
        logging.disable(logging.NOTSET)


def _one(data: bytes) -> None:
    if len(data) < 1 + _DAMAGE:
        return
    source = master(clean=bool(data[0] & 1))
    files = {name: bytearray(content) for name, content in source.files.items()}
    first_hit: dict[str, int] = {}
    for at in range(1, min(len(data), 1 + _MOST * _DAMAGE) - _DAMAGE + 1, _DAMAGE):
        _damage(files, first_hit, sorted(source.files), data[at : at + _DAMAGE])
    with _scratch() as name:
        root = Path(name)
        for relative, content in files.items():
            (root / relative).parent.mkdir(parents=True, exist_ok=True)
            (root / relative).write_bytes(content)
        _judge(root, source, first_hit)


def _damage(files: dict[str, bytearray], first_hit: dict[str, int], names: list[str], what: bytes) -> None:
    name = names[what[0] % len(names)]
    if name not in files:
        return
    content = files[name]
    place = int.from_bytes(what[2:5], "big") % (len(content) + 1)
    kind = what[1] % 6
    if kind == 0:
        del files[name]
        place = 0
    elif kind == 1:
        del content[place:]
    elif kind == 2:
        content[place:place] = what[5:]
    elif kind == 3:
        content[place : place + 7] = what[5:]
    elif kind == 4:
        content[place:] = bytes(len(content) - place)  # what a lost page leaves
    elif place < len(content):
        content[place] ^= 1 << (what[5] % 8)
    first_hit[name] = min(place, first_hit.get(name, place))


def _judge(root: Path, source: Master, first_hit: dict[str, int]) -> None:
    hit = {Path(name).name for name in first_hit}
    logs = LogManager.__new__(LogManager)
    try:
        logs = LogManager([root], 1, "fuzz", VirtualClock())
        logs.load(lambda topic: _CONFIG)
    except LogDirError:
        if hasattr(logs, "_dirs"):
            logs.close()
        assert hit & set(_MAY_REFUSE), f"refused, but only these were damaged: {sorted(first_hit)}"
        return
    try:
        log = logs.get(TP)
        if log is not None:
            served = _served(log)
            _check_truth(served, source, first_hit)
            _check_loss(served, source, first_hit, hit)
    finally:
        logs.close()


def _served(log: object) -> dict[int, tuple[bytes, ...] | None]:
    """Base offset -> values of every batch that is read from the start to the end; None: its checksum does
    not hold, so every client refuses it.
    """
    found: dict[int, tuple[bytes, ...] | None] = {}
    offset, end = log.start_offset, log.end_offset  # type: ignore[attr-defined]
    log.high_watermark = end  # type: ignore[attr-defined]
    while offset < end:
        try:
            part = log.read_blocking(offset, 1500)  # type: ignore[attr-defined]
        except LogError:
            break
        if not part.size:
            break
        data = b"".join(part.segments)
        with suppress(ProtocolError):  # damage in a closed segment, over which an index led: clients see it
            for pos, header in iter_headers(data):
                good = check_crc(data, pos, header)
                found[header.base_offset] = _values(data, pos, header) if good else None
        assert part.next_offset > offset, "a read that does not go on"
        offset = part.next_offset
    return found


def _values(data: bytes, pos: int, header: object) -> tuple[bytes, ...] | None:
    try:
        return tuple(record.value or b"" for record in read_records(data, pos, header))  # type: ignore[arg-type]
    except ProtocolError:
        return None


def _check_truth(
    served: dict[int, tuple[bytes, ...] | None], source: Master, first_hit: dict[str, int]
) -> None:
    """The checksum does not cover base offsets, so with a damaged log file only the values are proven."""
    moved = any(name.endswith(".log") for name in first_hit)
    everything = set(source.truth.values())
    for offset, values in served.items():
        if values is None:
            continue
        assert values in everything, f"offset {offset}: nobody wrote {values}"
        assert moved or source.truth.get(offset) == values, f"offset {offset}: wrong record {values}"


def _check_loss(
    served: dict[int, tuple[bytes, ...] | None], source: Master, first_hit: dict[str, int], hit: set[str]
) -> None:
    if hit & set(_MAY_DROP):
        return
    for name, end, offset in source.places:
        if first_hit.get(name, end) < end:
            return  # from here on the log may be cut
        assert served.get(offset) == source.truth[offset], f"offset {offset} is lost: {sorted(first_hit)}"
