"""Mixed load and bad connections for minutes; at the end memory is flat and nothing is lost.

    python -m tests.soak [--minutes 10] [--report build/soak/report.json] [--debug]

Exit 0: every condition in the report holds. Exit 1: one does not, or the broker ended.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from tests.soak import heap
from tests.soak.hostile import Hostile
from tests.soak.ledger import Ledger
from tests.soak.load import COMPACTED, Load
from tests.soak.watch import Sample, Watch, growth_per_minute
from tests.support.broker import BrokerProcess
from tests.support.zookeeper import fresh_chroot, start_zookeeper
from topology.runtime import free_port

EVERY_S = 10.0
WARM_UP = 0.5
"""Part of the run that is not judged: caches, arenas and the first segments fill."""
MB_PER_MINUTE = 0.1
"""A leak of 80 bytes per connection shows above this: 20 connections a second are killed."""
BLOCKS_PER_MINUTE = MB_PER_MINUTE * 1e6 / 64
DELETED_FILES = 8
SOCKETS_LEFT = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--report", type=Path, default=Path("build/soak/report.json"))
    parser.add_argument("--debug", action="store_true", help="the broker logs where its event loop stood")
    given = parser.parse_args()
    _raise_descriptor_limit()
    with tempfile.TemporaryDirectory(prefix="isthmus-soak-") as name:
        folder = Path(name)
        zookeeper = start_zookeeper(folder / "zookeeper")
        try:
            report = _soak(folder, zookeeper, given.minutes * 60, debug=given.debug)
        finally:
            zookeeper.stop()
    given.report.parent.mkdir(parents=True, exist_ok=True)
    given.report.write_text(json.dumps(report, indent=1))
    print(f"report: {given.report}")
    for name, outcome in report["conditions"].items():
        print(f"{'ok  ' if outcome['holds'] else 'FAIL'} {name}: {outcome['found']}")
    return 0 if all(outcome["holds"] for outcome in report["conditions"].values()) else 1


def _soak(folder: Path, zookeeper: EmbeddedZooKeeper, seconds: float, *, debug: bool) -> dict[str, Any]:
    metrics_port = free_port()
    settings = {
        "auto.create.topics.enable": "false",  # a producer's refresh would bring deleted topics back
        "log.cleaner.backoff.ms": "1000",
        "log.retention.check.interval.ms": "5000",
        "offsets.topic.segment.bytes": "1048576",  # so that the cleaner gets at what was committed
        "transaction.state.log.segment.bytes": "1048576",
        "connections.max.idle.ms": str(int(seconds * 1000 * 10)),  # the idle ones shall stay
    }
    broker = BrokerProcess(
        folder / "broker", fresh_chroot(zookeeper), 1, settings=settings,
        arguments=("--metrics-port", str(metrics_port), *(["--log-level", "debug"] * debug)),
    )  # fmt: skip
    os.environ.update(heap.inside(folder / "inside"))
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
        heaps = heap.read(folder / "inside")
        load.end()
        hostile.end()
        if broker.running:
            lost = _lost(broker.bootstrap, ledger)
            after = _settled(watch)
        else:
            lost, after = ["the broker ended"], before
        return _report(broker, ledger, load, hostile, watch, heaps, lost, (before.sockets, after.sockets))
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
    """Reads everything again; names what is not there, though retention has not passed it."""
    lost = []
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    for (topic, partition), values in sorted(ledger.acknowledged.items()):
        found = _read(consumer, topic, partition)
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), 60)
        kept = {offset: value for offset, value in values.items() if offset >= low}
        missing = sum(found.get(offset, (b"", None))[1] != value for offset, value in kept.items())
        if missing:
            lost.append(f"{topic}-{partition}: {missing} of {len(kept)} acknowledged records")
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
    heaps: Sequence[heap.Heap],
    lost: list[str],
    sockets: tuple[int, int],
) -> dict[str, Any]:
    loaded = [sample for sample in watch.samples[1:] if sample.connections > SOCKETS_LEFT]
    judged = loaded[int(len(loaded) * WARM_UP) :]
    growth = _growth(judged, heaps[int(len(heaps) * WARM_UP) :])
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
            "memory is flat (per minute)": outcome(_is_flat(growth), growth),
            "tasks are flat (per minute)": outcome(tasks < 5, round(tasks, 2)),
            "sockets of ended clients are gone": outcome(sockets[1] <= sockets[0] + SOCKETS_LEFT, sockets),
            "deleted files are let go": outcome(last.deleted_files <= DELETED_FILES, last.deleted_files),
            "the broker logged no traceback": outcome(tracebacks == 0, tracebacks),
        },
        "samples": watch.rows(),
        "heap": [row._asdict() for row in heaps],
    }


def _growth(judged: Sequence[Sample], heaps: Sequence[heap.Heap]) -> dict[str, float]:
    """Per minute; "MB in use" and "blocks" only where the heap could be asked."""
    found = {"MB resident": growth_per_minute([(each.at_s, each.resident_mb) for each in judged])}
    if heaps:
        found["MB in use"] = growth_per_minute([(each.at, each.used_mb) for each in heaps])
        found["blocks"] = growth_per_minute([(each.at, float(each.blocks)) for each in heaps])
    return {name: round(value, 3) for name, value in found.items()}


def _is_flat(growth: Mapping[str, float]) -> bool:
    """Resident memory does not grow, or what grew is room that malloc keeps: nothing more is in use."""
    in_use = growth.get("MB in use", 1.0) < MB_PER_MINUTE and growth["blocks"] < BLOCKS_PER_MINUTE
    return growth["MB resident"] < MB_PER_MINUTE or in_use


def _raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(65536, hard), hard))


if __name__ == "__main__":
    sys.exit(main())
