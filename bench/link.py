"""A link of ours beside MirrorMaker 2 (default and tuned), between the same two Apache Kafka brokers.

    python bench/link.py [--mb 300] [--repeat 1] [--codecs none,lz4] [--only isthmus,mm2] [--json FILE]

Each codec's topic (6 partitions, records of 1 KB that look like JSON) is written once; then the contenders
take turns in copying it from the beginning. MB are 10^6 bytes of record values. Throughput and CPU are taken
from the first record at the target to the last, so start-up (which has a row of its own) does not count: CPU
is user and system time of the copying process, and of the target's broker. Numbers are medians over the
repetitions. `kafka.sh` and `mm2.sh` are looked for in the folder ISTHMUS_INTEROP (default
`../shared/interop` beside the repository).
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from confluent_kafka import Producer

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from protocol.client import LATEST, ClusterClient, NewTopic  # noqa: E402
from protocol.errors import ProtocolError  # noqa: E402
from protocol.types import TopicPartition  # noqa: E402

PARTITIONS = 6
VALUE_BYTES = 1000
CONTENDERS = ("isthmus", "mm2", "mm2-tuned")
TUNED = """
tasks.max=4
source.consumer.fetch.min.bytes=262144
source.consumer.max.partition.fetch.bytes=4194304
source.consumer.fetch.max.bytes=33554432
source.consumer.max.poll.records=20000
source.consumer.receive.buffer.bytes=1048576
target.producer.batch.size=524288
target.producer.linger.ms=50
target.producer.buffer.memory=134217728
target.producer.max.request.size=4194304
"""


def interop(name: str) -> str:
    folder = Path(os.environ.get("ISTHMUS_INTEROP", ROOT.parent / "shared" / "interop"))
    script = folder / name
    if not script.is_file() or shutil.which("java") is None:
        sys.exit(f"no {script} or no java: set ISTHMUS_INTEROP to the folder that has {name}")
    return str(script)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def broker(name: str) -> Iterator[tuple[str, psutil.Process]]:
    port = free_port()
    environment = {"INTEROP_WAIT_S": "180", **os.environ, "INTEROP_CONTROLLER_PORT": str(free_port())}
    script = interop("kafka.sh")
    name = f"{name}-{os.getpid()}"
    try:
        started = subprocess.run(
            [script, "start", name, str(port), "log.retention.ms=-1"],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        yield f"127.0.0.1:{port}", psutil.Process(int(started.stdout.split()[-1]))
    finally:
        subprocess.run([script, "wipe", name], check=True, stdout=subprocess.DEVNULL)


def fill(bootstrap: str, topic: str, codec: str, megabytes: int) -> int:
    """Writes the topic; the number of records."""
    dice = random.Random(7)
    words = [f'"{dice.randrange(16**6):06x}": "{dice.choice(["east", "west", "north"])}"' for _ in range(400)]
    values = []
    for number in range(2000):
        text = "{" + ", ".join([f'"id": {number}', *dice.choices(words, k=60)]) + "}"
        values.append(text[:VALUE_BYTES].ljust(VALUE_BYTES).encode())
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "batch.size": 65536,
            "linger.ms": 50,
            "queue.buffering.max.kbytes": 262144,
        }
    )
    count = megabytes * 1_000_000 // VALUE_BYTES
    for number in range(count):
        while True:
            try:
                producer.produce(
                    topic, key=b"%08d" % number, value=values[number % 2000], partition=number % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0
    return count


def start(contender: str, east: str, west: str, alias: str, topic: str, folder: Path) -> psutil.Process:
    """Starts copying `topic`; the process that does it."""
    if contender == "isthmus":
        settings = {
            "source": {"alias": alias, "bootstrap": east},
            "target": {"alias": "target", "bootstrap": west},
            "topics": [topic],
        }
        command = [sys.executable, __file__, "--run-link", json.dumps(settings)]
        with (folder / "isthmus.log").open("ab") as log:
            return psutil.Process(subprocess.Popen(command, stdout=log, stderr=log).pid)
    properties = f"""
clusters={alias}, target
{alias}.bootstrap.servers={east}
target.bootstrap.servers={west}
{alias}->target.enabled=true
{alias}->target.topics={topic}
replication.factor=1
offset-syncs.topic.replication.factor=1
heartbeats.topic.replication.factor=1
checkpoints.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
{TUNED if contender == "mm2-tuned" else ""}"""
    path = folder / f"{alias}.properties"
    path.write_text(properties)
    started = subprocess.run(
        [interop("mm2.sh"), "start", str(path), f"bench-{alias}"],
        env={"INTEROP_WAIT_S": "180", **os.environ},
        check=True,
        capture_output=True,
        text=True,
    )
    return psutil.Process(int(started.stdout.split()[-1]))


def stop(contender: str, alias: str, process: psutil.Process) -> None:
    if contender == "isthmus":
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    else:
        subprocess.run([interop("mm2.sh"), "stop", f"bench-{alias}"], check=True, stdout=subprocess.DEVNULL)


def cpu(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system


def peak_mb(process: psutil.Process) -> float:
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1000
    return 0.0


async def copied(client: ClusterClient, topic: str) -> int:
    """Records at the target; 0 while there is no topic."""
    spots = {TopicPartition(topic, partition): LATEST for partition in range(PARTITIONS)}
    try:
        return sum(found.offset for found in (await client.list_offsets(spots)).values())
    except ProtocolError:
        return 0


async def measure(
    contender: str, east: str, west: str, topic: str, count: int, target: psutil.Process, folder: Path
) -> dict[str, float]:
    alias = f"e{time.time_ns() % 10**9}"
    async with ClusterClient(west) as client:
        begun = time.monotonic()
        process = await asyncio.to_thread(start, contender, east, west, alias, topic, folder)
        try:
            while not await copied(client, f"{alias}.{topic}"):
                await asyncio.sleep(0.02)
                if time.monotonic() - begun > 180:
                    raise TimeoutError(f"{contender} copied nothing in 3 minutes")
            first, own, theirs = time.monotonic(), cpu(process), cpu(target)
            there = await copied(client, f"{alias}.{topic}")
            while (done := await copied(client, f"{alias}.{topic}")) < count:  # noqa: ASYNC110 (polls a broker)
                await asyncio.sleep(0.02)
            seconds = time.monotonic() - first
            own, theirs = cpu(process) - own, cpu(target) - theirs
            megabytes = (done - there) * VALUE_BYTES / 1e6
            return {
                "mb_per_s": megabytes / seconds,
                "mb_per_cpu_s": megabytes / own,
                "target_broker_cpu_s_per_gb": theirs / megabytes * 1000,
                "first_record_s": first - begun,
                "peak_mb": peak_mb(process),
            }
        finally:
            await asyncio.to_thread(stop, contender, alias, process)


async def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    folder = ROOT / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with broker("bench-east") as (east, _), broker("bench-west") as (west, target):
        for codec in options.codecs.split(","):
            topic = f"bench-{codec}"
            async with ClusterClient(east) as client:
                await client.create_topics([NewTopic(topic, PARTITIONS, 1)])
            count = await asyncio.to_thread(fill, east, topic, codec, options.mb)
            runs: dict[str, list[dict[str, float]]] = {name: [] for name in options.only.split(",")}
            # The first copy warms the target's JVM for everybody and is not counted.
            await measure("isthmus", east, west, topic, count, target, folder)
            for _ in range(options.repeat):
                for name, found in runs.items():
                    found.append(await measure(name, east, west, topic, count, target, folder))
                    print(codec, name, {key: round(value, 1) for key, value in found[-1].items()}, flush=True)
            for name, found in runs.items():
                rows.append(
                    {
                        "codec": codec,
                        "contender": name,
                        "mb": options.mb,
                        **{key: round(median(run[key] for run in found), 2) for key in found[0]},
                    }
                )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    print(
        f"{'codec':6} {'contender':10} {'MB/s':>7} {'MB/CPU-s':>9} {'broker s/GB':>12} {'first':>7} {'MB':>5}"
    )
    for row in rows:
        print(
            f"{row['codec']:6} {row['contender']:10} {row['mb_per_s']:7.1f} {row['mb_per_cpu_s']:9.1f}"
            f" {row['target_broker_cpu_s_per_gb']:12.1f} {row['first_record_s']:7.2f} {row['peak_mb']:5.0f}"
        )


def run_one(settings_json: str) -> int:
    """The copying process of ours: what `isthmus replicate` runs."""
    import logging

    import uvloop
    from prometheus_client import CollectorRegistry

    from replicator.settings import LinkSettings
    from replicator.worker import run_link

    logging.basicConfig(level=logging.INFO)

    async def main() -> int:
        ending = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
        return await run_link(LinkSettings.model_validate_json(settings_json), ending, CollectorRegistry())

    return int(uvloop.run(main()))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mb", type=int, default=300)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--codecs", default="none,lz4")
    parser.add_argument("--only", default=",".join(CONTENDERS), help="contenders, separated by commas")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench" / "link.json")
    parser.add_argument("--run-link", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_link:
        return run_one(options.run_link)
    rows = asyncio.run(compare(options))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"rows": rows, "cpus": os.cpu_count()}, indent=1) + "\n")
    show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
