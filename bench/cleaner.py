"""Cost of compaction: MB of log cleaned in a second and in a CPU second, by record size and codec.

    python -m bench.cleaner [--data DIR] [--mb N] [--keys N]

Writes a log in which each key occurs many times, compacts it in this process as the cleaner's own would, and
prints one line a case. The whole log is dirty, so all of it is read twice. CPU time of this process, so that
other load on the machine matters little.
"""

import argparse
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

from broker.clock import SystemClock
from broker.config.server_settings import LogSettings
from broker.log import Log, LogConfig
from broker.log.cleaner.compaction import Compaction
from broker.log.cleaner.job import Done, Event
from broker.log.cleaner.partition import dirt_of, job_for
from broker.log.cleaner.throttle import Throttle
from protocol.records import Codec, Record, build_batch

CASES = ((1000, Codec.NONE), (1000, Codec.LZ4), (100, Codec.NONE), (10_000, Codec.NONE))
_BATCH = 16_000


def fill(path: Path, megabytes: int, keys: int, size: int, codec: Codec) -> Log:
    path.mkdir(parents=True)
    log = Log.open(path, LogConfig(cleanup_policy="compact", segment_bytes=256 << 20), SystemClock())
    now, value = time.time_ns() // 1_000_000, os.urandom(size // 2) + bytes(size - size // 2)
    count = max(1, _BATCH // size)
    for _ in range(megabytes * 1_000_000 // (size * count)):
        records = [Record(n, now, b"key-%d" % random.randrange(keys), value) for n in range(count)]
        log.append(bytearray(build_batch(records, codec=codec)), 0)
    log.high_watermark = log.end_offset
    log.roll()
    return log


def measure(path: Path, megabytes: int, keys: int, size: int, codec: Codec) -> str:
    log = fill(path, megabytes, keys, size, codec)
    now_ms = SystemClock().now_ms()
    job = job_for(log, dirt_of(log, None, now_ms), LogSettings(), now_ms)
    events: list[Event] = []
    wall, cpu = time.monotonic(), time.process_time()
    Compaction(job, events.append, Throttle(float("inf"))).run()
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    done, megabytes_there = events[-1], log.size / 1e6
    assert isinstance(done, Done)
    log.release()
    return (
        f"{size:6} B {codec.name.lower():5} {megabytes_there:6.0f} MB, {done.records_read:8} records,"
        f" {done.records_kept:7} kept: {megabytes_there / wall:6.1f} MB/s,"
        f" {megabytes_there / cpu:6.1f} MB a CPU second,"
        f" {cpu / done.records_read * 1e6:5.1f} us of CPU a record"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, help="where to write; by default a temporary directory")
    parser.add_argument("--mb", type=int, default=400, help="size of each log")
    parser.add_argument("--keys", type=int, default=50_000)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(dir=options.data))
    try:
        for number, (size, codec) in enumerate(CASES):
            print(measure(place / f"{number}-0", options.mb, options.keys, size, codec), flush=True)
            shutil.rmtree(place / f"{number}-0")
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
