"""librdkafka's own broker tests against one of our brokers (README.md says how to run one by hand).

Some test numbers run at a time, since most wait; what fails runs again alone, as some tests measure time.
Quick mode (-Q) is left out: many tests would pass without sending a request.
"""

import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.librdkafka.build import LIBRDKAFKA_VERSION, test_folder
from tests.interop.librdkafka.runner import Job, Runner
from tests.interop.librdkafka.three import three_brokers
from tests.interop.suite import Options, Result, main
from tests.support.apache_kafka import kafka_libraries, kafka_script

# 0113 counts rebalances of two consumers that subscribe at once: the first must wait for the second.
_ALWAYS = {"num.partitions": "4", "group.initial.rebalance.delay.ms": "1000"}
SCENARIOS = {
    "default": {**_ALWAYS, "auto.create.topics.enable": "true"},
    "noautocreate": {**_ALWAYS, "auto.create.topics.enable": "false"},
}
"""Broker settings by librdkafka's name of a test scenario."""
PARTS = {
    "0081_admin": (
        "unclean_destroy", "CreateTopics", "DeleteTopics", "CreatePartitions", "CreateAcls", "DescribeAcls",
        "DeleteAcls", "AlterConfigs", "IncrementalAlterConfigs", "DescribeConfigs", "DeleteRecords",
        "ListConsumerGroups", "DescribeConsumerGroups", "DescribeTopics", "DescribeCluster", "DeleteGroups",
        "DeleteConsumerGroupOffsets", "ListOffsets", "AlterConsumerGroupOffsets", "ListConsumerGroupOffsets",
        "UserScramCredentials",
    ),
}  # fmt: skip
"""Tests that stop at their first failure and are run in parts, called TEST:PART."""
IDEMPOTENT = (
    "0001_multiobj", "0005_order", "0008_reqacks", "0011_produce_batch", "0012_produce_consume",
    "0017_compression", "0048_partitioner", "0073_headers", "0075_retry", "0076_produce_retry",
    "0086_purge_remote", "0125_immediate_flush",
)  # fmt: skip
"""Tests that run a second time with idempotent producers, called TEST:idempotent."""
_LIMIT_S = 600.0
_AT_A_TIME = 3
_TOPICS_TOOL = "org.apache.kafka.tools.TopicCommand"
_ENTRY = re.compile(r"_TEST\(\s*(\d{4}\w*)\s*,(.*?)(?=_TEST\(|\};)", re.S)

OUT_OF_SCOPE = {
    "0092": "message format 1, which Kafka 4 does not have either",
    "0097": "TLS",
    "0115": "ACLs",
    "0119": "ACLs",
    "0126": "SASL",
    "0139": "librdkafka's mock cluster, no broker",
    "0142": "SASL",
    "0150": "librdkafka's mock cluster, no broker",
}
THREE = (
    "0101_fetch_from_follower", "0102_static_group_rebalance", "0103_transactions", "0107_topic_recreate",
    "0135_sasl_credentials",
)  # fmt: skip
"""Tests that run, or run a second time, against three brokers in racks, called TEST:three."""
ONLY_THREE = frozenset({"0101", "0135"})
NEED_KAFKA = frozenset({"0052", "0077", "0098", "0109", "0113"})
"""Numbers that call Kafka's scripts or run its Java clients."""
SHARE_GROUPS = range(155, 200)


def broker_tests(source: Path) -> dict[str, Job]:
    """Tests that need a broker and are within our scope, from the runner's own table, and what runs each."""
    table = source.read_text().partition("struct test tests[]")[2]
    found: dict[str, Job] = {}
    for name, flags in _ENTRY.findall(table):
        number = name[:4]
        elsewhere = re.search(r"TEST_F_(LOCAL|MANUAL|KNOWN_ISSUE)\b", flags) or number == "0000"
        if elsewhere or number in OUT_OF_SCOPE or int(number) in SHARE_GROUPS:
            continue
        scenario = "noautocreate" if '"noautocreate"' in flags else "default"
        if name in PARTS:
            found |= {f"{name}:{part}": Job(number, scenario, part) for part in PARTS[name]}
        elif number not in ONLY_THREE:
            found[name] = Job(number, scenario)
        if name in THREE:
            found[f"{name}:three"] = Job(number, scenario, three=True, sasl=number == "0135")
        if name in IDEMPOTENT:
            found[f"{name}:idempotent"] = Job(number, scenario, idempotent=True)
    return found


def kafka_tools(scratch: Path) -> dict[str, str]:
    """KAFKA_PATH with what tests call; empty where Apache Kafka's tools cannot be had."""
    try:
        script = kafka_script()
    except pytest.skip.Exception:
        return {}
    if shutil.which("javac") is None:
        return {}
    home = scratch / "kafka"
    _program(home / "bin" / "kafka-topics.sh", f'exec "{script}" tool {_TOPICS_TOOL} "$@"')
    _program(home / "bin" / "kafka-run-class.sh", f'exec java -Xmx256m -cp "$CLASSPATH:{home}/libs/*" "$@"')
    if not (home / "libs").exists():
        (home / "libs").symlink_to(kafka_libraries())
    return {"KAFKA_PATH": str(home)}


def _program(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def tests(options: Options) -> Iterator[Result]:
    folder = test_folder()
    every = broker_tests(folder / "test.c")
    chosen = options.chosen(every)
    for scenario, settings in SCENARIOS.items():
        jobs: dict[Job, list[str]] = {}
        three: dict[Job, list[str]] = {}
        for name in chosen:
            if every[name].scenario == scenario:
                (three if every[name].three else jobs).setdefault(every[name], []).append(name)
        if three:
            yield from _three(folder, options, settings, three)
        if jobs:
            with options.broker(settings) as bootstrap:
                tools = kafka_tools(options.scratch)
                for job in [job for job in jobs if job.number in NEED_KAFKA and not tools]:
                    for name in jobs.pop(job):
                        yield Result(name, "unavailable", note="no Kafka tools or no javac")
                yield from _all(Runner(folder, bootstrap, options.scratch, tools, _LIMIT_S), jobs)


def _three(
    folder: Path, options: Options, settings: Mapping[str, str], jobs: dict[Job, list[str]]
) -> Iterator[Result]:
    if options.against == "kafka":
        for name in (name for names in jobs.values() for name in names):
            yield Result(name, "unavailable", note="kafka.sh starts one broker only")
        return
    with three_brokers(options, settings) as (bootstrap, sasl):
        yield from _all(Runner(folder, bootstrap, options.scratch, {}, _LIMIT_S, sasl), jobs)


def _all(runner: Runner, jobs: dict[Job, list[str]]) -> Iterator[Result]:
    again = []
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        running = {pool.submit(runner.run, job, names): job for job, names in jobs.items()}
        for future in as_completed(running):
            if any(result.status == "failed" for result in future.result()):
                again.append(running[future])
            else:
                yield from future.result()
    for job in again:
        for result in runner.run(job, jobs[job]):
            yield replace(result, note=f"second try. {result.note}".strip())


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent, tests, LIBRDKAFKA_VERSION))
