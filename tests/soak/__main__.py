"""Mixed load and bad connections for minutes; at the end memory is flat and nothing is lost.

    python -m tests.soak [--minutes 10] [--report build/soak/report.json]

Exit 0: every condition in the report holds. Exit 1: one does not, or the broker ended.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from tests.soak.hostile import Hostile
from tests.soak.ledger import Ledger
from tests.soak.load import COMPACTED, Load
from tests.soak.watch import Watch, growth_per_minute
from tests.support.broker import BrokerProcess
from tests.support.zookeeper import fresh_chroot, start_zookeeper

EVERY_S = 10.0
WARM_UP = 0.4
"""Part of the run that is not judged: caches, arenas and the first segments fill."""
MB_PER_MINUTE = 1.0
"""A leak of one object per connection shows above this: 20 connections a second are killed."""
DELETED_FILES = 8
SOCKETS_LEFT = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--report", type=Path, default=Path("build/soak/report.json"))
    given = parser.parse_args()
    _raise_descriptor_limit()
    with tempfile.TemporaryDirectory(prefix="isthmus-soak-") as name:
        folder = Path(name)
        zookeeper = start_zookeeper(folder / "zookeeper")
        try:
            report = _soak(folder, zookeeper, given.minutes * 60)
        finally:
            zookeeper.stop()
    given.report.parent.mkdir(parents=True, exist_ok=True)
    given.report.write_text(json.dumps(report, indent=1))
    print(f"report: {given.report}")
    for name, outcome in report["conditions"].items():
        print(f"{'ok  ' if outcome['holds'] else 'FAIL'} {name}: {outcome['found']}")
    return 0 if all(outcome["holds"] for outcome in report["conditions"].values()) else 1


def _soak(folder: Path, zookeeper: EmbeddedZooKeeper, seconds: float) -> dict[str, Any]:
    metrics_port = _free_port()
    settings = {
        "auto.create.topics.enable": "false",  # a producer's refresh would bring deleted topics back
        "log.cleaner.backoff.ms": "1000",
        "log.retention.check.interval.ms": "5000",
        "connections.max.idle.ms": str(int(seconds * 1000 * 10)),  # the idle ones shall stay
    }
    broker = BrokerProcess(
        folder / "broker", fresh_chroot(zookeeper), 1, settings=settings,
        arguments=("--metrics-port", str(metrics_port)),
    )  # fmt: skip
    broker.start()
    try:
        ledger = Ledger()
        watch = Watch(broker.pid, "127.0.0.1", broker.port, metrics_port)
        before = watch.take()
        load = Load(broker.bootstrap, ledger)
        hostile = Hostile("127.0.0.1", broker.port, "soak-none")
        load.start()
        hostile.start()
        began = time.monotonic()
        while broker.running and time.monotonic() - began < seconds:
            time.sleep(EVERY_S)
            print(watch.take(), flush=True)
        load.end()
        hostile.end()
        if broker.running:
            lost = _lost(broker.bootstrap, ledger)
            after = _settled(watch)
        else:
            lost, after = ["the broker ended"], before
        return _report(broker, ledger, load, hostile, watch, lost, before.sockets, after.sockets)
    finally:
        _keep_output(broker)
        broker.kill()


def _keep_output(broker: BrokerProcess) -> None:
    kept = Path("build/soak/broker.log")
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(broker.output)


def _settled(watch: Watch) -> Any:
    """The last sample, when connections of clients that ended are gone (at most half a minute)."""
    sample = watch.take()
    for _ in range(15):
        if sample.connections <= SOCKETS_LEFT:
            break
        time.sleep(2)
        sample = watch.take()
    return sample


def _lost(bootstrap: str, ledger: Ledger) -> list[str]:
    """Reads everything again; names what is not there."""
    lost = []
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    for (topic, partition), values in sorted(ledger.acknowledged.items()):
        found = _read(consumer, topic, partition)
        missing = sum(found.get(offset, (b"", None))[1] != value for offset, value in values.items())
        if missing:
            lost.append(f"{topic}-{partition}: {missing} of {len(values)} acknowledged records")
    newest = dict(_read(consumer, COMPACTED, 0).values())
    for (_, key), value in ledger.latest.items():
        if newest.get(key) != value:
            lost.append(f"{COMPACTED}: key {key!r} is {newest.get(key)!r:.30}, not {value!r:.30}")
    consumer.close()
    return lost


def _read(consumer: Consumer, topic: str, partition: int) -> dict[int, tuple[bytes, bytes]]:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 60)
    here = TopicPartition(topic, partition, low)
    consumer.assign([here])
    found: dict[int, tuple[bytes, bytes]] = {}
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and consumer.position([here])[0].offset < high:
        for message in consumer.consume(2000, 1.0):
            if message.error() is None:
                found[int(message.offset() or 0)] = (message.key() or b"", message.value() or b"")
    return found


def _report(
    broker: BrokerProcess,
    ledger: Ledger,
    load: Load,
    hostile: Hostile,
    watch: Watch,
    lost: list[str],
    sockets_before: int,
    sockets_after: int,
) -> dict[str, Any]:
    loaded = [sample for sample in watch.samples[1:] if sample.connections > SOCKETS_LEFT]
    judged = loaded[int(len(loaded) * WARM_UP) :]
    slope = growth_per_minute([(sample.at_s, sample.resident_mb) for sample in judged])
    tasks = growth_per_minute([(sample.at_s, float(sample.tasks)) for sample in judged])
    failures = [*load.failures, *hostile.failures]
    tracebacks = broker.output.count("Traceback")
    last = watch.samples[-1]

    def outcome(holds: bool, found: object) -> dict[str, Any]:
        return {"holds": holds, "found": found}

    return {
        "seconds": watch.samples[-1].at_s,
        "acknowledged": ledger.count,
        "refused": ledger.refused,
        "counts": {**load.counts, "connections killed": hostile.killed},
        "transactions": load.transactions,
        "conditions": {
            "the broker runs": outcome(broker.running, broker.running),
            "clients saw no failure": outcome(not failures, failures),
            "acknowledged records are all there": outcome(not lost, lost or ledger.count),
            "no offset holds two values": outcome(not ledger.wrong, ledger.wrong[:10]),
            "memory is flat (MB per minute)": outcome(slope < MB_PER_MINUTE, round(slope, 3)),
            "tasks are flat (per minute)": outcome(tasks < 5, round(tasks, 2)),
            "sockets of ended clients are gone": outcome(
                sockets_after <= sockets_before + SOCKETS_LEFT, [sockets_before, sockets_after]
            ),
            "deleted files are let go": outcome(last.deleted_files <= DELETED_FILES, last.deleted_files),
            "the broker logged no traceback": outcome(tracebacks == 0, tracebacks),
        },
        "samples": watch.rows(),
    }


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(65536, hard), hard))


if __name__ == "__main__":
    sys.exit(main())
