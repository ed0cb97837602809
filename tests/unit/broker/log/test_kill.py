"""SIGKILL at random moments: the next start has everything that was acknowledged, without a hand (I12)."""

import os
import random
import selectors
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker.log import Log, LogConfig
from protocol.records import iter_headers
from tests.support.batches import records_of
from tests.support.clock import VirtualClock

CONFIG = LogConfig(segment_bytes=200_000, index_interval_bytes=2000)

# Appends batches of 1..5 records that carry their own offset, and prints each acknowledged log end.
WRITER = """
import random, sys
from broker.clock import SystemClock
from broker.log import Log
from tests.support.batches import batch
from tests.unit.broker.log.test_kill import CONFIG

log = Log.open(sys.argv[1], CONFIG, SystemClock(), recovery_point=int(sys.argv[2]))
out = sys.stdout
sequence = log.producers.get(77).last_sequence + 1 if log.producers.get(77) else 0
while True:
    end = log.end_offset
    size = random.choice((10, 300, 3000))
    values = [b"%d" % i + bytes(size) for i in range(end, end + random.randint(1, 5))]
    log.append(batch(values, producer=(77, 0, sequence)), 0)
    sequence += len(values)
    log.high_watermark = log.end_offset
    if random.random() < 0.01:
        log.flush()
    out.write(f"{log.end_offset} {log.recovery_point}\\n")
    out.flush()
"""


def run_until_killed(directory: Path, recovery_point: int, appends: int) -> tuple[int, int]:
    """(last acknowledged log end, last recovery point) of a writer that was killed after `appends` or so."""
    root = Path(__file__).parents[4]
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), str(recovery_point)],
        stdout=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
    ) as child:  # fmt: skip
        assert child.stdout is not None
        try:
            with selectors.DefaultSelector() as ready:
                ready.register(child.stdout, selectors.EVENT_READ)
                for _ in range(appends):
                    assert ready.select(60), "the writer says nothing"
                    line = child.stdout.readline()
                    assert line, "the writer ended by itself"
        finally:
            child.send_signal(signal.SIGKILL)
        rest = child.stdout.read()
    acknowledged = [line for line in [line, *rest.splitlines(keepends=True)] if line.endswith(b"\n")][-1]
    end, point = acknowledged.split()
    return int(end), int(point)


@pytest.mark.slow
def test_everything_acknowledged_is_there_after_each_kill(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    point = 0
    for _ in range(8):
        acknowledged, point = run_until_killed(directory, point, random.choice([1, 3, 20, 150, 400]))
        log = Log.open(directory, CONFIG, VirtualClock(), recovery_point=point)
        assert log.end_offset >= acknowledged
        offset = 0
        while offset < log.end_offset:
            found = log.read_blocking(offset, 500_000)
            for record in records_of(found.segments):
                assert record.offset == offset == int((record.value or b"").rstrip(b"\0"))
                offset += 1
        assert offset == log.end_offset
        producer = log.producers.get(77)
        assert producer is not None
        assert producer.last_sequence == log.end_offset - 1
        for segment in log.segments:
            data = segment.file.read(0, segment.size)
            starts = {pos: header.last_offset for pos, header in iter_headers(data)}
            index = segment.offset_index
            for relative, position in zip(index.offsets, index.positions, strict=True):
                assert starts[position] == relative + segment.base_offset
        log.release()
