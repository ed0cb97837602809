"""Scenarios: the performance and verification tools; their figures are taken out, their counts are not."""

import re

from tests.interop.java.scenarios_records import numbers, produce
from tests.interop.java.shell import Shell
from tests.interop.java.tool_server import Outcome


def performance(shell: Shell) -> None:
    shell.run("TopicCommand", "--create", "--topic", "fast", "--partitions", "3")
    base = ("--topic", "fast", "--num-records", "5000", "--record-size", "100", "--throughput", "-1")
    for name, settings in (("default", ()), ("acks=0", ("acks=0",)), ("lz4", ("compression.type=lz4",))):
        command = (*base, "--command-property", *settings) if settings else base
        outcome = shell.tools.run("ProducerPerformance", "--bootstrap-server", shell.bootstrap, *command)
        last = Outcome(outcome.code, (outcome.out.splitlines() or [""])[-1], outcome.err)
        shell.record([f"ProducerPerformance {name}"], _records_sent(last))
    said = shell.ask("ConsumerPerformance", "--topic", "fast", "--num-records", "15000", "--timeout", "20000")
    rows = said.out.splitlines()
    shell.note(
        f"ConsumerPerformance -> {said.code}, {rows[0].count(',')} commas, {rows[-1].split(', ')[4]} records"
    )
    latency = shell.tools.run(
        "EndToEndLatency", *("-b", shell.bootstrap, "-t", "quick", "-n", "200", "-a", "1", "-s", "100")
    )
    shell.note(f"EndToEndLatency -> {latency.code}, {re.sub(r'[0-9.]+', '#', latency.out)}")


def _records_sent(outcome: Outcome) -> Outcome:
    found = re.search(r"\d+ records sent", outcome.out)
    return Outcome(outcome.code, found[0] if found else outcome.out, outcome.err)


_BETWEEN_BROKERS = {"LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"}
"""Of clusters with ZooKeeper; Kafka 4's tools no longer know them."""


def api_versions(shell: Shell) -> None:
    """Every API that we advertise can be used by Kafka's newest client; not compared line by line."""
    said = shell.ask("BrokerApiVersionsCommand")
    assert said.code == 0, said.err
    unusable = set(re.findall(r"(\w+)\(\d+\): (?:\d+|\d+ to \d+) \[unusable", said.out))
    shell.note(f"advertised for nobody: {sorted(unusable - _BETWEEN_BROKERS)}")
    wanted = (
        "Produce Fetch ListOffsets Metadata OffsetCommit JoinGroup ApiVersions CreateTopics DescribeConfigs"
    )
    shell.note(f"missing: {[name for name in wanted.split() if not re.search(rf'{name}.*usable', said.out)]}")


def compaction(shell: Shell) -> None:
    """Kafka's own test of compaction: writes, waits for the cleaner, reads, compares."""
    outcome = shell.ask(
        "LogCompactionTester", "--messages", "80000", "--duplicates", "20", "--percent-deletes", "20",
        "--topics", "1", "--sleep", "6",
    )  # fmt: skip
    said = outcome.out + outcome.err
    assert outcome.code == 0, said[-600:]
    reduced = re.search(r"\((\d+\.\d)% reduction\)", said)
    mismatches = re.search(r"(\d+) mismatches", said)
    shell.note(f"mismatches: {mismatches and mismatches[1]}, reduced: {reduced and float(reduced[1]) > 10}")


def transactional_copy(shell: Shell) -> None:
    """Kafka's own read-process-write loop: every record once, also when it aborts some."""
    shell.run("TopicCommand", "--create", "--topic", "copied-to")
    produce(shell, "copied-from", numbers(0, 200))
    sink = ("--input-topic", "copied-from", "--input-partition", "0", "--output-topic", "copied-to")
    copied = shell.tools.run(
        "TransactionalMessageCopier", "--broker-list", shell.bootstrap, *sink,
        "--max-messages", "200", "--transaction-size", "30", "--consumer-group", "copying",
        "--transactional-id", "copier", "--enable-random-aborts",
    )  # fmt: skip
    shell.note(f"TransactionalMessageCopier -> {copied.code}")
    assert copied.code == 0, (copied.out + copied.err)[-600:]
    read = ("--timeout-ms", "15000", "--from-beginning", "--max-messages", "200")
    shell.run("ConsoleConsumer", "--topic", "copied-to", "--isolation-level", "read_committed", *read)
    shell.run("ConsumerGroupCommand", "--describe", "--group", "copying")


def transactions(shell: Shell) -> None:
    shell.run("TopicCommand", "--create", "--topic", "transacted")
    base = ("--topic", "transacted", "--num-records", "300", "--record-size", "20", "--throughput", "-1")
    outcome = shell.tools.run(
        "ProducerPerformance", "--bootstrap-server", shell.bootstrap, *base,
        "--transaction-id", "measured", "--transaction-duration-ms", "50",
    )  # fmt: skip
    shell.note(f"{outcome.code} {outcome.err}")
    at = ("--bootstrap-server", shell.bootstrap)
    listed = shell.tools.run("TransactionsCommand", *at, "list")
    shell.record(["TransactionsCommand list"], Outcome(listed.code, _no_ids(listed.out), listed.err))
    for arguments in (
        ("describe", "--transactional-id", "measured"),
        ("describe", "--transactional-id", "absent"),
        ("describe-producers", "--topic", "transacted", "--partition", "0"),
        ("find-hanging", "--broker-id", "1"),
        ("abort", "--topic", "transacted", "--partition", "0", "--start-offset", "0"),
        ("forceTerminateTransaction", "--transactionalId", "measured"),
    ):
        said = shell.tools.run("TransactionsCommand", *at, *arguments)
        shell.record(["TransactionsCommand", *arguments], Outcome(said.code, _no_ids(said.out), said.err))
    read = ("--timeout-ms", "5000", "--from-beginning")
    committed = shell.ask(
        "ConsoleConsumer", "--topic", "transacted", "--isolation-level", "read_committed", *read
    )
    shell.note(f"{len(committed.out.splitlines())} committed")


def _no_ids(text: str) -> str:
    rows = [line.split() for line in text.splitlines()]
    return "\n".join(
        " ".join("#" if word.isdigit() and len(word) > 1 else word for word in row) for row in rows
    )
