"""Scenarios: tools that look at a whole application or at all replicas, and tools for what is not served."""

import re

from tests.interop.java import jars
from tests.interop.java.jvm import Jvm
from tests.interop.java.scenarios_records import numbers, produce
from tests.interop.java.shell import Shell

_REPORTS = 6


def application_reset(shell: Shell) -> None:
    """kafka-streams-application-reset: offsets go back, internal topics go away, others stay."""
    for name in ("words-in", "job-store-changelog", "job-of-another"):
        shell.run("TopicCommand", "--create", "--topic", name)
    produce(shell, "words-in", numbers(0, 20))
    at = ("--group", "job")
    back = ("--reset-offsets", "--topic", "words-in", "--to-latest", "--execute")
    shell.run("ConsumerGroupCommand", *at, *back)
    inputs = ("--application-id", "job", "--input-topics", "words-in")
    shell.run("StreamsResetter", *inputs, "--dry-run", any_order=True)
    shell.run("StreamsResetter", *inputs, "--by-duration", "soon", any_order=True)
    shell.run("StreamsResetter", *inputs, "--internal-topics", "no-such-changelog", any_order=True)
    shell.run("StreamsResetter", *inputs, "--to-earliest", "--force", any_order=True)

    def gone() -> bool:
        return "job-store-changelog" not in shell.ask("TopicCommand", "--list").out

    shell.until("internal topics are gone", gone)
    shell.run("TopicCommand", "--list", "--topic", "job-.*|words-in")
    shell.run("ConsumerGroupCommand", *at, "--describe", "--offsets")
    shell.run("StreamsResetter", "--application-id", "job", "--input-topics", "absent", any_order=True)


def replica_verification(shell: Shell) -> None:
    """kafka-replica-verification runs until it is ended: it finds all replicas, and no difference."""
    shell.run("TopicCommand", "--create", "--topic", "verified")
    produce(shell, "verified", numbers(0, 30))
    given = ("--topics-include", "verified", "--report-interval-ms", "300", "--time", "-2")
    tool = ("org.apache.kafka.tools.ReplicaVerificationTool", "--broker-list", shell.bootstrap, *given)
    jvm = Jvm([f"{jars.tools()}/*"], *tool, folder=shell.scratch)
    try:
        shell.until("it reports", lambda: len(_lags(jvm)) >= _REPORTS or not jvm.running)
        assert jvm.running, jvm.output[-1000:]
        shell.note(f"highest lags: {sorted(set(_lags(jvm)[1:_REPORTS]))}")  # the first has seen nothing yet
        shell.note(f"differences: {jvm.output.count('different') + jvm.output.count('checksum')}")
    finally:
        jvm.kill()


def _lags(jvm: Jvm) -> list[int]:
    """What it said of the lag of replicas, report by report."""
    return [int(lag) for lag in re.findall(r"max lag is (-?\d+)", jvm.output)]


def not_served(shell: Shell) -> None:
    """What is out of scope here is refused as such, and nothing hangs."""
    shell.run("DelegationTokenCommand", "--describe", "--command-config", shell.file("none.properties", ""))
    shell.run("ClientMetricsCommand", "--list")
    shell.run("ShareGroupCommand", "--list")
    shell.run("StreamsGroupCommand", "--list")
    shell.run("MetadataQuorumCommand", "describe", "--status")
