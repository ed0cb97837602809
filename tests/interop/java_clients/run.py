"""Kafka's Java clients of several releases against our broker, and what SIGKILL of the broker costs them.

A test is VERSION:SCENARIO (scenarios of `Clients.java`, one JVM for each version), `killed`: Kafka's own
VerifiableProducer and VerifiableConsumer while the broker is killed and started again, or `copied`: the same
with its TransactionalMessageCopier.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from tests.interop.java import jars
from tests.interop.java.jvm import Jvm
from tests.interop.java.topic_reading import read
from tests.interop.java.waiting import until
from tests.interop.suite import Options, Result, main
from tests.support.broker import BrokerProcess
from tests.support.transactions import read_to_end, write
from tests.support.zookeeper import fresh_chroot, start_zookeeper

_VERSIONS = ("2.8.2", "3.9.1", "4.3.1")
_SCENARIOS = ("none", "gzip", "snappy", "lz4", "zstd", "group", "admin", "transactions")
_KILLS = 3
_COPIED = 2000
_LIMIT_S = 400.0
# The jars beside the client: loggers and codecs. Older releases work with the newer ones.
_BESIDE = ("slf4j-api", "log4j-", "lz4-java", "snappy-java", "zstd-jni", "jackson-")


def run_version(version: str, scenarios: list[str], bootstrap: str, folder: Path) -> Iterator[Result]:
    beside = [str(jar) for jar in sorted(jars.tools().glob("*.jar")) if jar.name.startswith(_BESIDE)]
    classpath = [f"{jars.clients(version)}/kafka-clients-{version}.jar", *beside]
    source = Path(__file__).with_name("Clients.java")
    classes = jars.compiled(source, folder / f"classes-{version}", ":".join(classpath))
    started = time.monotonic()
    jvm = Jvm([str(classes), *classpath], "Clients", bootstrap, *scenarios, folder=folder)
    try:
        jvm.wait(_LIMIT_S)
    except AssertionError as wrong:
        print(str(wrong), file=sys.stderr, flush=True)
    finally:
        jvm.kill()
    seconds = (time.monotonic() - started) / len(scenarios)
    said = jvm.output
    if " WRONG " in said:
        print(said[-6000:], file=sys.stderr, flush=True)
    for scenario in scenarios:
        lines = [
            line for line in said.splitlines() if line.startswith((f"{scenario} ok", f"{scenario} WRONG"))
        ]
        note = lines[0].partition(" ")[2] if lines else "it said nothing"
        status = "passed" if note == "ok" else "failed"
        yield Result(f"{version}:{scenario}", status, seconds, "" if note == "ok" else note[:300])


def killed(options: Options) -> Result:
    """Nothing that the producer was told is safe may be missing, and the consumer reads all of it."""
    if options.against != "isthmus":
        return Result("killed", "skipped", note="kills our own broker only")
    started = time.monotonic()
    zookeeper = start_zookeeper(options.scratch / "zookeeper")
    broker = BrokerProcess(options.scratch / "killed", fresh_chroot(zookeeper), 1)
    tools = [f"{jars.tools()}/*"]
    programs: list[Jvm] = []
    try:
        bootstrap = broker.start().bootstrap
        at = ("--bootstrap-server", bootstrap, "--topic", "verified")
        package = "org.apache.kafka.tools.Verifiable"
        producer = Jvm(tools, f"{package}Producer", *at, "--throughput", "400", folder=options.scratch)
        programs.append(producer)
        reads = ("--group-id", "verifying", "--reset-policy", "earliest", "--verbose")
        consumer = Jvm(
            tools, f"{package}Consumer", *at, *reads, "--enable-autocommit", folder=options.scratch
        )
        programs.append(consumer)
        for number in range(1, _KILLS + 1):
            wanted = 400 * number
            until("records are acknowledged", lambda wanted=wanted: len(_acknowledged(producer)) > wanted)
            broker.kill()
            broker.start()
        before = len(_acknowledged(producer))
        until("it goes on after the last kill", lambda: len(_acknowledged(producer)) > before + 400)
        producer.process.terminate()  # it sends what is left, then ends
        producer.wait(120)
        sent = set(_acknowledged(producer))
        until("the consumer has read all", lambda: sent <= set(_events(consumer, "record_data")))
        stored = [value for _, value in read(bootstrap, "verified")]
    except AssertionError as wrong:
        print(f"{wrong}\n{broker.output[-3000:]}", file=sys.stderr, flush=True)
        return Result("killed", "failed", time.monotonic() - started, str(wrong)[:300])
    finally:
        for program in programs:
            program.kill()
        broker.kill()
        zookeeper.stop()
    lost, twice = sent - set(stored), len(stored) - len(set(stored))
    status = "failed" if lost or twice else "passed"
    note = f"{len(sent)} acknowledged, {len(stored)} stored, {len(lost)} lost, {twice} twice, {_KILLS} kills"
    return Result("killed", status, time.monotonic() - started, note)


def copied(options: Options) -> Result:
    """Kafka's TransactionalMessageCopier (transactions of version 2, random aborts) over kills of the broker.

    Each record arrives once and in order.
    """
    if options.against != "isthmus":
        return Result("copied", "skipped", note="kills our own broker only")
    started = time.monotonic()
    zookeeper = start_zookeeper(options.scratch / "copied-zookeeper")
    broker = BrokerProcess(options.scratch / "copied", fresh_chroot(zookeeper), 1)
    values = [f"{number:05}" for number in range(_COPIED)]
    copier: Jvm | None = None
    found: list[str] = []
    try:
        bootstrap = broker.start().bootstrap
        write(Producer({"bootstrap.servers": bootstrap}), "in", *values)
        copier = Jvm(
            [f"{jars.tools()}/*"],
            "org.apache.kafka.tools.TransactionalMessageCopier",
            *("--broker-list", bootstrap, "--input-topic", "in", "--input-partition", "0"),
            *("--output-topic", "out", "--transactional-id", "copier", "--consumer-group", "copier"),
            *("--transaction-size", "10", "--max-messages", str(_COPIED)),
            *("--enable-random-aborts", "--use-group-metadata"),
            folder=options.scratch,
        )
        for number in range(_KILLS):
            wanted = (number + 1) * _COPIED // (_KILLS + 2)
            until("records are copied", lambda wanted=wanted: len(_committed(bootstrap)) >= wanted)
            broker.kill()
            broker.start()
        copier.wait(_LIMIT_S)
        until("all is copied", lambda: len(_committed(bootstrap)) >= _COPIED)
        found = _committed(bootstrap)
    except AssertionError as wrong:
        said = copier.output[-3000:] if copier else ""
        print(f"{wrong}\n{said}\n{broker.output[-3000:]}", file=sys.stderr, flush=True)
        return Result("copied", "failed", time.monotonic() - started, str(wrong)[:300])
    finally:
        if copier is not None:
            copier.kill()
        broker.kill()
        zookeeper.stop()
    note = f"{len(set(values) - set(found))} lost, {len(found) - len(set(found))} twice, {_KILLS} kills"
    return Result("copied", "passed" if found == values else "failed", time.monotonic() - started, note)


def _committed(bootstrap: str) -> list[str]:
    return read_to_end(bootstrap, "out", "read_committed")[0]


def _acknowledged(producer: Jvm) -> list[str]:
    return _events(producer, "producer_send_success")


def _events(program: Jvm, name: str) -> list[str]:
    mark = f'"name":"{name}"'
    return [
        json.loads(line)["value"]
        for line in program.output.splitlines()
        if mark in line and line.endswith("}")
    ]


def tests(options: Options) -> Iterator[Result]:
    every = [
        *(f"{version}:{scenario}" for version in _VERSIONS for scenario in _SCENARIOS),
        "killed",
        "copied",
    ]
    chosen = options.chosen(every)
    jars.tools()
    by_version = {
        version: [name.partition(":")[2] for name in chosen if name.startswith(f"{version}:")]
        for version in _VERSIONS
    }
    if any(by_version.values()):
        with options.broker({"group.initial.rebalance.delay.ms": "0"}) as bootstrap:
            for version, scenarios in by_version.items():
                if scenarios:
                    yield from run_version(version, scenarios, bootstrap, options.scratch)
    if "killed" in chosen:
        yield killed(options)
    if "copied" in chosen:
        yield copied(options)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent, tests, "2.8.2, 3.9.1, 4.3.1"))
