"""Our broker beside Apache Kafka in the same run: throughput, broker CPU, memory.

    python bench/broker.py [--mb 60] [--repeat 3] [--only TEXT] [--no-kafka] [--json build/bench/broker.json]

Both brokers run with default settings, one replica, 6 partitions; the client is librdkafka with default
settings in a process of its own (`bench/kafka_load.py`). Sides take turns, each number is the median over the
repetitions. MB are 10^6 bytes of record values. Broker CPU is user and system time of the broker's process
alone (ours without ZooKeeper, which idles; Kafka's with its controller). Kafka's JVM gets faster over its
first gigabytes: compare runs of `--mb 500` or more. `kafka.sh` is looked for in the folder ISTHMUS_INTEROP
(default `../shared/interop` beside the repository); without it only our side is measured.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = Path(__file__).resolve().parents[1]
PARTITIONS = 6
WARM_UP_MB = 300
SIZES = {"100 B": 100, "1 KB": 1000, "10 KB": 10_000}


@dataclass(frozen=True)
class Case:
    load: str
    size: int
    acks: str
    codec: str
    name: str


def cases() -> Iterator[Case]:
    for label, size in SIZES.items():
        for acks in ("1", "all"):
            for codec in ("none", "lz4"):
                yield Case("produce", size, acks, codec, f"produce {label} acks={acks} {codec}")
    for label, size in SIZES.items():
        for codec in ("none", "lz4"):
            yield Case("consume", size, "1", codec, f"fetch {label} {codec}")


class Side:
    """A running broker: where it is, and its process."""

    def __init__(self, name: str, bootstrap: str, pid: int) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self._process = psutil.Process(pid)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._topics = 0

    def cpu_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def resident_mb(self) -> float:
        return float(self._process.memory_info().rss / 1e6)

    def topic(self) -> str:
        self._topics += 1
        name = f"bench-{self._topics}"
        for future in self._admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
            future.result(30)
        return name

    def drop(self, topic: str) -> None:
        for future in self._admin.delete_topics([topic]).values():
            future.result(30)

    def run(self, case: Case, topic: str, mb: float) -> dict[str, float]:
        command = [
            *(sys.executable, str(ROOT / "bench" / "kafka_load.py"), case.load, self.bootstrap, topic),
            *("--size", str(case.size), "--mb", str(mb), "--acks", case.acks, "--codec", case.codec),
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            if client.stdout.readline() != "ready\n":
                raise SystemExit(f"the client did not start: {case.name} on {self.name}")
            before = self.cpu_s()
            client.stdin.write("go\n")
            client.stdin.flush()
            found = json.loads(client.stdout.readline())
            cpu = self.cpu_s() - before
        done = found["bytes"] / 1e6
        return {"mb_s": done / found["seconds"], "mb_cpu_s": done / max(cpu, 0.01)}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def isthmus(directory: Path) -> Iterator[Side]:
    port = free_port()
    command = [
        *(sys.executable, "-m", "isthmus", "broker", "--embedded-zookeeper"),
        *("--listener", f"PLAINTEXT://127.0.0.1:{port}", "--data", str(directory)),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if "ready" not in line:
                raise SystemExit(f"our broker did not start: {line}")
            yield Side("isthmus", f"127.0.0.1:{port}", process.pid)
        finally:
            process.terminate()


@contextlib.contextmanager
def apache_kafka(script: Path) -> Iterator[Side]:
    port, controller = free_port(), free_port()
    name = f"bench-{os.getpid()}"
    environment = {**os.environ, "INTEROP_CONTROLLER_PORT": str(controller)}
    try:
        started = subprocess.run(
            [str(script), "start", name, str(port)],
            env=environment, check=True, capture_output=True, text=True,
        )  # fmt: skip
        yield Side("kafka", f"127.0.0.1:{port}", int(started.stdout.split()[-1]))
    finally:
        subprocess.run([str(script), "wipe", name], check=False, capture_output=True)


def measure(side: Side, case: Case, mb: float) -> dict[str, float]:
    topic = side.topic()
    try:
        if case.load == "consume":
            side.run(Case("produce", case.size, case.acks, case.codec, "fill"), topic, mb)
        return side.run(case, topic, mb)
    finally:
        side.drop(topic)


def summary(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(median(run[name] for run in runs), 1) for name in runs[0]}


def row(case: Case, sides: list[Side], mb: float, repeat: int) -> dict[str, Any]:
    runs: dict[str, list[dict[str, float]]] = {side.name: [] for side in sides}
    for _ in range(repeat):
        for side in sides:
            runs[side.name].append(measure(side, case, mb))
    result: dict[str, Any] = {"name": case.name}
    for side in sides:
        result[side.name] = summary(runs[side.name]) | {"resident_mb": round(side.resident_mb(), 1)}
    if len(sides) == 2:
        ours, theirs = result["isthmus"], result["kafka"]
        result["ratio_mb_s"] = round(ours["mb_s"] / theirs["mb_s"], 2)
        result["ratio_mb_cpu_s"] = round(ours["mb_cpu_s"] / theirs["mb_cpu_s"], 2)
    return result


def show(result: dict[str, Any]) -> None:
    cells = [f"{result['name']:32}"]
    for side in ("isthmus", "kafka"):
        if side in result:
            each = result[side]
            cells.append(f"{each['mb_s']:8.0f} {each['mb_cpu_s']:9.0f} {each['resident_mb']:7.0f}")
    if "ratio_mb_s" in result:
        cells.append(f"{result['ratio_mb_s']:6.2f} {result['ratio_mb_cpu_s']:6.2f}")
    print(" |".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=float, default=60, help="record values per run")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "broker.json")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the brokers too
    script = Path(os.environ.get("ISTHMUS_INTEROP", ROOT.parent / "shared" / "interop")) / "kafka.sh"
    data = Path(tempfile.mkdtemp(prefix="bench-broker-"))
    rows: list[dict[str, Any]] = []
    try:
        with contextlib.ExitStack() as running:
            sides = [running.enter_context(isthmus(data / "data"))]
            if options.no_kafka or not script.is_file():
                print(f"Apache Kafka is not measured{'' if options.no_kafka else f': no {script}'}")
            else:
                sides.append(running.enter_context(apache_kafka(script)))
            warm = Case("consume", 1000, "1", "none", "warm-up")
            for side in sides:
                measure(side, warm, WARM_UP_MB)
            print(f"{'':32} |    MB/s  MB/CPU-s  res. MB |    MB/s  MB/CPU-s  res. MB |  ratio  (CPU)")
            for case in cases():
                if options.only in case.name:
                    rows.append(row(case, sides, options.mb, options.repeat))
                    show(rows[-1])
    finally:
        shutil.rmtree(data, ignore_errors=True)
    write(options, rows)


def write(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    options.json.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "partitions": PARTITIONS,
        "mb_per_run": options.mb,
        "repeat": options.repeat,
        "rows": rows,
    }
    options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
