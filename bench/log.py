"""Cost of a partition log: appends and reads by batch size, beside what the bare system calls take.

    python -m bench.log [--data DIR] [--mb N]

Prints one line per case: MB per CPU second, microseconds of CPU per append or read, the same for a bare
pwrite of the same bytes, and the difference, which is what the log adds (checksum included). CPU time of this
thread, so that other load on the machine matters little. `--profile` prints where 16 KB appends spend theirs.
"""

import argparse
import cProfile
import os
import pstats
import shutil
import tempfile
import time
from pathlib import Path

from broker.clock import SystemClock
from broker.log import Log, LogConfig
from protocol.records import BatchHeader, Codec, Record, build_batch, read_header, set_producer

SIZES = (500, 4_000, 16_000, 64_000, 900_000)
CONFIG = LogConfig(segment_bytes=1 << 30)


def batch_of(size: int) -> bytearray:
    value = os.urandom(1000 if size > 1100 else size // 3)
    now = time.time_ns() // 1_000_000
    count = max(1, size // (len(value) + 10))
    return bytearray(build_batch([Record(i, now, b"key", value) for i in range(count)], codec=Codec.NONE))


def open_log(path: Path) -> Log:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return Log.open(path, CONFIG, SystemClock(), clean=True)


def renew(batch: bytearray, header: BatchHeader, i: int, *, idempotent: bool) -> None:
    """What a client does before it sends: a fresh base offset, and a sequence that goes on."""
    if idempotent:
        sequence = i * header.record_count & 0x7FFF_FFFF
        set_producer(batch, 0, header, producer_id=7, producer_epoch=0, base_sequence=sequence)
    else:
        batch[0:8] = bytes(8)


def append_many(log: Log, batch: bytearray, times: int, *, idempotent: bool) -> float:
    """CPU seconds of the appends alone."""
    view = memoryview(batch)
    header = read_header(view)
    begin = time.thread_time()
    for i in range(times):
        renew(batch, header, i, idempotent=idempotent)
    client = time.thread_time() - begin
    begin = time.thread_time()
    for i in range(times):
        renew(batch, header, i, idempotent=idempotent)
        log.append(view, 0)
    return time.thread_time() - begin - client


def pwrite_many(path: Path, batch: bytearray, times: int) -> float:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        begin = time.thread_time()
        for i in range(times):
            os.pwrite(fd, batch, i * len(batch))
        return time.thread_time() - begin
    finally:
        os.close(fd)
        path.unlink()


def read_all(log: Log, max_bytes: int) -> tuple[float, int]:
    offset, reads = 0, 0
    begin = time.thread_time()
    while offset < log.end_offset:
        offset = log.read_blocking(offset, max_bytes).next_offset
        reads += 1
    return time.thread_time() - begin, reads


def line(name: str, size: int, seconds: float, times: int, bare: float | None = None) -> None:
    each = seconds / times * 1e6
    text = f"{name:<28} {size:>9} B {size * times / seconds / 1e6:>8.0f} MB/CPU-s {each:>8.1f} us"
    if bare is not None:
        text += f"   bare {bare / times * 1e6:>7.1f} us   log adds {each - bare / times * 1e6:>6.1f} us"
    print(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="directory to write to (default: a temporary one)")
    parser.add_argument("--mb", type=int, default=400, help="megabytes per case")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="isthmus-bench-", dir=args.data))
    try:
        if args.profile:
            log = open_log(base / "t-0")
            profile = cProfile.Profile()
            profile.runcall(append_many, log, batch_of(16_000), 20_000, idempotent=False)
            log.close()
            pstats.Stats(profile).sort_stats("tottime").print_stats(18)
            return
        for size in SIZES:
            batch = batch_of(size)
            times = max(100, min(20_000, args.mb * 1_000_000 // len(batch)))
            bare = min(pwrite_many(base / "bare", batch, times) for _ in range(3))
            for idempotent in (False, True):
                log = open_log(base / "t-0")
                spent = append_many(log, batch, times, idempotent=idempotent)
                line("append" + (", idempotent" if idempotent else ""), len(batch), spent, times, bare)
                if not idempotent:
                    seconds, reads = read_all(log, 1_000_000)
                    line("read, 1 MB at a time", log.size // reads, seconds, reads)
                log.release()
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
