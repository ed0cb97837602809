"""How long one record takes, on a quiet broker and beside heavy work.

- end to end: one record at a time from a producer to a consumer, by the Java EndToEndLatency tool (whole
  milliseconds) and by a librdkafka pair (`bench/record_latency.py`);
- a small producer (100 records of 100 bytes a second, acks=1) quiet, while a lagging reader pulls segments
  that are not in the page cache, and while the cleaner compacts a topic. The ratio is loaded by quiet.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bench.brokers.cases import FETCH, PRODUCE, Case
from bench.brokers.clients import run, tool
from bench.brokers.limits import RowFailed, client
from bench.brokers.sides import ROOT, Side

Figures = dict[str, float | None]
# A p99 of a busy producer may be this many times its quiet value.
MUST_RATIO = 3.0
SMALL_TOPIC = 1
# A lagging reader sits on another machine: here it gets what the others leave of the processors. Where the
# kernel shares them out by session first (autogroup), its own session has to be told as well.
ELSEWHERE = (
    *("sh", "-c", '{ echo 19 > /proc/self/autogroup; } 2>/dev/null; exec chrt --idle 0 "$@"'),
    "elsewhere",
)
CLEANED_WITHIN_S = 90.0
_PERCENTILES = re.compile(r"Percentiles: 50th = ([\d.]+), 99th = ([\d.]+)")


def end_to_end_java(side: Side, records: int, script: Path) -> Figures:
    topic = side.topic(SMALL_TOPIC)
    text = tool(
        script, "EndToEndLatency", "--bootstrap-server", side.bootstrap, "--topic", topic,
        "--num-records", str(records), "--producer-acks", "1", "--record-size", "100",
    )  # fmt: skip
    side.drop(topic)
    p50, p99 = (float(number) for number in _PERCENTILES.findall(text)[-1])
    mean = re.findall(r"Avg latency: ([\d.]+)", text)[-1]
    return {"p50_ms": p50, "p99_ms": p99, "mean_ms": float(mean)}


def _client(side: Side, topic: str, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
    command = [sys.executable, str(ROOT / "bench" / "record_latency.py"), side.bootstrap, topic, *arguments]
    return client(command)


def _result(process: subprocess.Popen[str]) -> Figures:
    """Ends the client and takes what it measured."""
    out, _ = process.communicate("stop\n", timeout=300)
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return {"p50_ms": found["p50_ms"], "p99_ms": found["p99_ms"]}


def end_to_end_librdkafka(side: Side, records: int) -> Figures:
    topic = side.topic(SMALL_TOPIC)
    with _client(side, topic, "pair", "--records", str(records)) as process:
        found = _result(process)
    side.drop(topic)
    return found


def small_producer(side: Side, work: Callable[[], object]) -> Figures:
    """p50 and p99 of the small producer while `work` runs."""
    topic = side.topic(SMALL_TOPIC)
    with _client(side, topic, "steady") as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RowFailed("the small producer did not start")
        work()
        found = _result(process)
    side.drop(topic)
    return found


def beside_lagging_reader(side: Side, mb: float, script: Path, data: Path) -> dict[str, Figures]:
    """Quiet and loaded figures; the reader's data is dropped from the page cache before it reads.

    `bare` is the same producer while the same files, cold again, go from one process to another without the
    broker (`bench/bare_copy.py`): what this machine does to it anyway.
    """
    quiet = small_producer(side, lambda: time.sleep(10))
    topic = side.topic()
    run(side, Case(load=PRODUCE, size=1000), topic, mb, script)
    logs = _logs(data, topic)
    dropped = drop_from_cache(logs)
    reading = Case(load=FETCH, size=1000)
    loaded = small_producer(side, lambda: run(side, reading, topic, mb, script, beside=ELSEWHERE))
    drop_from_cache(logs)
    copy = [sys.executable, str(ROOT / "bench" / "bare_copy.py"), *logs]
    bare = small_producer(side, lambda: subprocess.run(copy, check=True, stdout=subprocess.DEVNULL))
    side.drop(topic)
    return {"quiet": quiet, "loaded": loaded, "bare": bare, "cold": {"mb": dropped / 1e6}}


def _logs(data: Path, topic: str) -> list[str]:
    """The topic's segments. os.walk passes over directories of other topics that are deleted meanwhile."""
    return [
        os.path.join(directory, name)
        for directory, _, names in os.walk(data)
        for name in names
        if name.endswith(".log") and os.path.basename(directory).startswith(f"{topic}-")
    ]


def drop_from_cache(logs: Sequence[str]) -> int:
    """Write these files to the disk and let the kernel forget them; returns their bytes."""
    size = 0
    for path in logs:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            size += os.fstat(fd).st_size
        finally:
            os.close(fd)
    return size


def beside_cleaner(side: Side, mb: float, data: Path) -> dict[str, Figures]:
    """Quiet and loaded figures; loaded is from the end of writing until most is gone.

    A twentieth of the records are the last of their key. `cleaned` has None when it was not done in time.
    """
    quiet = small_producer(side, lambda: time.sleep(10))
    topic = side.topic(SMALL_TOPIC, {"cleanup.policy": "compact", "segment.bytes": str(int(mb * 1e6) // 32)})
    command = [
        *(sys.executable, str(ROOT / "bench" / "record_latency.py"), side.bootstrap, topic, "keys"),
        *("--mb", str(mb), "--keys", str(int(mb * 50))),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    written = _size(data, topic)
    cleaned: Figures = {"mb": None}

    def wait() -> None:
        deadline = time.monotonic() + CLEANED_WITHIN_S
        while _size(data, topic) > written / 3:
            if time.monotonic() > deadline:
                return
            time.sleep(2)  # looking takes a processor too: four times a second, it was the p99
        cleaned["mb"] = _size(data, topic) / 1e6

    loaded = small_producer(side, wait)
    side.drop(topic)
    return {"quiet": quiet, "loaded": loaded, "written": {"mb": written / 1e6}, "cleaned": cleaned}


def _size(data: Path, topic: str) -> int:
    size = 0
    for path in data.glob(f"**/log/{topic}-*/*.log"):
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size
