"""Kafka's command-line tools against our broker and Apache Kafka: the same commands must say the same.

A scenario runs against both; what is each broker's own is taken out before comparing (shell.py). `--against
kafka` compares Apache Kafka with another Apache Kafka, which shows what the comparison itself is worth.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.interop.java import (
    jars,
    scenarios_applications,
    scenarios_groups,
    scenarios_load,
    scenarios_records,
    scenarios_topics,
)
from tests.interop.java.shell import Shell, differences
from tests.interop.java.tool_server import ToolServer
from tests.interop.suite import Options, Result, main
from tests.support.apache_kafka import apache_kafka

Scenario = Callable[[Shell], None]

SETTINGS = {
    "num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "500",
}
COMPARED: Sequence[Scenario] = (
    scenarios_topics.topics,
    scenarios_topics.topic_settings,
    scenarios_topics.broker_settings,
    scenarios_topics.cluster,
    scenarios_topics.reassignment,
    scenarios_topics.log_dirs,
    scenarios_topics.compatibility,
    scenarios_records.console,
    scenarios_records.offsets,
    scenarios_records.delete_records,
    scenarios_records.log_files,
    scenarios_records.internal_topics,
    scenarios_groups.group_states,
    scenarios_groups.group_resets,
    scenarios_load.performance,
    scenarios_load.api_versions,
    scenarios_load.compaction,
    scenarios_load.transactional_copy,
    scenarios_load.transactions,
    scenarios_applications.application_reset,
    scenarios_applications.replica_verification,
    scenarios_applications.not_served,
)
KNOWN: Mapping[str, Sequence[str]] = {
    "topics": [r"^Topic: (placed|wide|plain) .* Configs:$"],
    "topic_settings": [
        r"^(local|remote)\.",
        r"^min\.insync\.replicas=1 ",
        r"^(retention\.ms|segment\.ms|flush\.ms|segment\.jitter\.ms|\w+\.replication\.throttled\.replicas)=",
    ],
    "broker_settings": [
        r"^(min\.insync\.replicas|log\.retention\.ms)=\d+ sensitive",
        r"no\.such\.setting",
        r"^Completed updating config for broker 1",
        r"^java.util.concurrent.ExecutionException$",
        r"^Caused by: org.apache.kafka.common.errors.InvalidRequestException$",
    ],
    "not_served": [
        r"^org\.apache\.kafka\.common\.errors\.Unsupported(ByAuthentication|Version)Exception$",
        r"^(Caused by: org\.apache\.kafka\.common\.errors\.Unsupported|java\.util\.concurrent\.Execution)",
        r"^\$ (ClientMetricsCommand|MetadataQuorumCommand) ",
        r"^(Error while executing client metrics|ClusterId|Leader(Id|Epoch)|HighWatermark|MaxFollower)",
        r"^Current(Voters|Observers): ",
    ],
    "cluster": [r"^Feature: "],
    "offsets": [r"^Skip getting offsets for topic-partition .*UnsupportedVersionException$"],
    "group_states": [
        r"nobody",
        r"GroupIdNotFound",
        r"^java.util.concurrent.ExecutionException$",
        r"^GROUP CONSUMER",
    ],
}
"""Lines that may differ, as patterns; FINDINGS.md says why."""


def compare(scenario: Scenario, shells: Sequence[Shell]) -> Result:
    name = scenario.__name__
    started = time.monotonic()
    try:
        for shell in shells:
            shell.lines.clear()
            scenario(shell)
    except (AssertionError, LookupError, ValueError) as wrong:
        return Result(name, "failed", time.monotonic() - started, str(wrong)[:300])
    seconds = time.monotonic() - started
    different = differences(shells[0].lines, shells[1].lines, KNOWN.get(name, ()))
    if different:
        print("\n".join(different), flush=True)
        return Result(name, "failed", seconds, f"{len(different)} lines of difference")
    return Result(name, "passed", seconds, f"{len(shells[0].lines)} lines are the same")


def tests(options: Options) -> Iterator[Result]:
    chosen = options.chosen(scenario.__name__ for scenario in COMPARED)
    jars.tools()
    with ExitStack() as stack:
        log = options.scratch / "tools.log"
        given = [f"{name}={text}" for name, text in SETTINGS.items()]
        with ThreadPoolExecutor() as pool:  # started beside ours: that is most of the time of a short run
            oracle = pool.submit(stack.enter_context, apache_kafka("java-oracle", *given))
            subject = stack.enter_context(options.broker(SETTINGS))
            tools = stack.enter_context(ToolServer(options.scratch, log))
            shells = [Shell(tools, bootstrap, options.scratch) for bootstrap in (oracle.result(), subject)]
        for scenario in COMPARED:
            if scenario.__name__ in chosen:
                yield compare(scenario, shells)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent, tests, "4.3.1"))
