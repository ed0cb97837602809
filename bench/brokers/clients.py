"""The clients that make the load: librdkafka in a process of its own, and Apache Kafka's Java tools.

Each run gives `mb_s` (10^6 bytes of record values per second, by the client's own clock), `mb_cpu_s` (the
same per second of broker CPU) and, where the client knows them, `p50_ms` and `p99_ms`. These are round trips
of requests for librdkafka, and times from send to acknowledgement for the Java producer.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.brokers.cases import JAVA, PRODUCE, Case
from bench.brokers.limits import RowFailed, client
from bench.brokers.sides import ROOT, Side

TOOLS = "org.apache.kafka.tools."
Figures = dict[str, float | None]


def run(
    side: Side, case: Case, topic: str, mb: float, script: Path, *, beside: Sequence[str] = ()
) -> Figures:
    """One load against one broker. `beside` comes before the client's command line."""
    records = max(1000, int(mb * 1e6) // case.size)
    before = side.cpu_s()
    if case.client != JAVA:
        seconds, p50, p99, before = _librdkafka(side, case, topic, mb, beside)
    elif case.load == PRODUCE:
        seconds, p50, p99 = _java_produce(side, case, topic, records, script)
    else:
        seconds, p50, p99 = _java_consume(side, topic, records, script)
    cpu = max(side.cpu_s() - before, 0.01)
    done = records * case.size / 1e6
    return {"mb_s": done / seconds, "mb_cpu_s": done / cpu, "p50_ms": p50, "p99_ms": p99}


def _librdkafka(
    side: Side, case: Case, topic: str, mb: float, beside: Sequence[str]
) -> tuple[float, float | None, float | None, float]:
    command = [
        *beside,
        *(sys.executable, str(ROOT / "bench" / "kafka_load.py"), case.load, side.bootstrap, topic),
        *("--size", str(case.size), "--mb", str(mb), "--acks", case.acks, "--codec", case.codec),
        *(() if case.backoff_ms is None else ("--python", "--queue-backoff-ms", str(case.backoff_ms))),
    ]
    with client(command) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RowFailed(f"the client did not start on {side.name}")
        before = side.cpu_s()
        process.stdin.write("go\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RowFailed(f"the client on {side.name} ended without figures")
        found = json.loads(line)
    return found["seconds"], found["p50_ms"], found["p99_ms"], before


def tool(script: Path, name: str, *arguments: str) -> str:
    """What a Java tool prints. Raises RowFailed with its last words when it fails."""
    command = [str(script), "tool", TOOLS + name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RowFailed(f"{name} failed: {(done.stderr or done.stdout)[-500:]}")
    return done.stdout


_PRODUCED = re.compile(r"records sent, ([\d.]+) records/sec .*?([\d.]+) ms 50th, .*?([\d.]+) ms 99th,")


def _java_produce(
    side: Side, case: Case, topic: str, records: int, script: Path
) -> tuple[float, float | None, float | None]:
    text = tool(
        script, "ProducerPerformance", "--topic", topic, "--num-records", str(records),
        "--record-size", str(case.size), "--throughput", "-1", "--bootstrap-server", side.bootstrap,
        "--command-property", f"acks={case.acks}", f"compression.type={case.codec}",
    )  # fmt: skip
    rate, p50, p99 = (float(number) for number in _PRODUCED.findall(text)[-1])
    return records / rate, p50, p99


def _java_consume(
    side: Side, topic: str, records: int, script: Path
) -> tuple[float, float | None, float | None]:
    """Seconds of fetching alone: joining the group takes as long as the whole load."""
    text = tool(
        script, "ConsumerPerformance", "--bootstrap-server", side.bootstrap, "--topic", topic,
        "--num-records", str(records), "--hide-header", "--timeout", "60000",
    )  # fmt: skip
    cells = [cell.strip() for cell in text.strip().splitlines()[-1].split(",")]
    return float(cells[7]) / 1000, None, None
