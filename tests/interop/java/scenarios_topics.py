"""Scenarios: topics, settings, and what else an operator asks a broker with Kafka's tools."""

import json
import re

from tests.interop.java.shell import Shell


def topics(shell: Shell) -> None:
    def topic(*arguments: str) -> None:
        shell.run("TopicCommand", *arguments)

    topic("--create", "--topic", "plain")
    topic("--create", "--topic", "plain")
    topic("--create", "--topic", "plain", "--if-not-exists")
    topic("--create", "--topic", "wide", "--partitions", "3", "--replication-factor", "1")
    topic("--create", "--topic", "placed", "--replica-assignment", "1,1")
    topic("--create", "--topic", "set", "--config", "retention.ms=5000", "--config", "cleanup.policy=compact")
    topic("--create", "--topic", "wrong", "--config", "retention.ms=soon")
    topic("--create", "--topic", "wrong", "--config", "no.such.setting=1")
    topic("--create", "--topic", "wrong", "--replication-factor", "2")
    topic("--create", "--topic", "wrong", "--partitions", "0")
    topic("--create", "--topic", "bad name")
    topic("--create", "--topic", "placed.wrongly", "--replica-assignment", "7")
    topic("--list")
    topic("--list", "--topic", "p.*")
    topic("--list", "--exclude-internal")
    for name in ("plain", "wide", "placed", "set"):
        topic("--describe", "--topic", name)
    topic("--describe", "--topic", "absent")
    topic("--describe", "--topic", "absent", "--if-exists")
    for what in (
        "--topics-with-overrides",
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--at-min-isr-partitions",
        "--under-min-isr-partitions",
    ):
        topic("--describe", what)
    found = re.search(r"TopicId: (\S+)", shell.ask("TopicCommand", "--describe", "--topic", "wide").out)
    assert found
    by_id = shell.ask("TopicCommand", "--describe", "--topic-id", found[1])
    shell.record(["TopicCommand --describe --topic-id"], by_id)
    topic("--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ")
    topic("--alter", "--topic", "wide", "--partitions", "5")
    topic("--alter", "--topic", "wide", "--partitions", "4")
    topic("--alter", "--topic", "wide", "--partitions", "6", "--replica-assignment", "1,1,1,1,1,1")
    topic("--alter", "--topic", "absent", "--partitions", "4")
    topic("--describe", "--topic", "wide")
    topic("--delete", "--topic", "plain")
    topic("--delete", "--topic", "absent")
    topic("--delete", "--topic", "absent", "--if-exists")
    topic("--delete", "--topic", "w.*|s.*")
    shell.until("topics are gone", lambda: "wide" not in shell.ask("TopicCommand", "--list").out)
    topic("--list")


def topic_settings(shell: Shell) -> None:
    shell.run("TopicCommand", "--create", "--topic", "settings", "--config", "segment.bytes=2000000")
    _settings(
        shell, "topics", "settings", "retention.ms=1000,cleanup.policy=[compact,delete]", "retention.ms"
    )
    at = ("--entity-type", "topics", "--entity-name", "settings")
    for wrong in ("retention.ms=soon", "no.such.setting=1", "cleanup.policy=burn", "min.insync.replicas=0"):
        shell.run("ConfigCommand", "--alter", *at, "--add-config", wrong)
    shell.run("ConfigCommand", "--alter", *at, "--delete-config", "min.insync.replicas,no.such.setting")
    shell.run("ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", "absent")
    absent = ("--entity-type", "topics", "--entity-name", "absent", "--add-config", "retention.ms=1")
    shell.run("ConfigCommand", "--alter", *absent)
    file = shell.file("settings.properties", "retention.ms=77\nsegment.ms=60000\n")
    shell.run("ConfigCommand", "--alter", *at, "--add-config-file", file)
    shell.run("ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", "settings")
    shell.run("ConfigCommand", "--describe", *at, "--all")


def broker_settings(shell: Shell) -> None:
    _settings(shell, "brokers", "1", "log.retention.ms=7200000,log.cleaner.threads=2", "log.cleaner.threads")
    default = ("--entity-type", "brokers", "--entity-default")
    shell.run("ConfigCommand", "--alter", *default, "--add-config", "log.retention.ms=9000000")
    shell.run("ConfigCommand", "--describe", *default)
    shell.run("ConfigCommand", "--describe", "--entity-type", "brokers", "--entity-name", "1")
    shell.run("TopicCommand", "--create", "--topic", "inherits")
    all_of_it = shell.ask(
        "ConfigCommand", "--describe", "--all", "--entity-type", "topics", "--entity-name", "inherits"
    )
    shell.note(next(line for line in all_of_it.out.splitlines() if line.startswith("  retention.ms")))
    for wrong in ("log.retention.ms=soon", "broker.id=7", "no.such.setting=1", "listeners=PLAINTEXT://:1"):
        shell.run(
            "ConfigCommand",
            "--alter",
            "--entity-type",
            "brokers",
            "--entity-name",
            "1",
            "--add-config",
            wrong,
        )
    shell.run("ConfigCommand", "--describe", "--entity-type", "brokers", "--entity-name", "7")
    shell.run("ConfigCommand", "--alter", *default, "--delete-config", "log.retention.ms")
    one = ("--entity-type", "brokers", "--entity-name", "1")
    shell.run("ConfigCommand", "--alter", *one, "--delete-config", "log.retention.ms")
    shell.run("ConfigCommand", "--describe", *default)
    shell.run("ConfigCommand", "--describe", *one)


def _settings(shell: Shell, kind: str, name: str, given: str, removed: str) -> None:
    at = ("--entity-type", kind, "--entity-name", name)

    def applied() -> bool:  # Kafka applies a broker's settings after it has answered
        said = shell.ask("ConfigCommand", "--describe", *at).out
        return all(f"  {pair} " in said for pair in given.split(",") if "[" not in pair)

    shell.run("ConfigCommand", "--describe", *at)
    shell.run("ConfigCommand", "--alter", *at, "--add-config", given)
    shell.until("settings are applied", lambda: "compact" in given or applied())
    shell.run("ConfigCommand", "--describe", *at, any_order=True)
    shell.run("ConfigCommand", "--alter", *at, "--delete-config", removed)
    shell.run("ConfigCommand", "--describe", *at)


def cluster(shell: Shell) -> None:
    identity = shell.run("ClusterTool", "cluster-id")
    assert re.search(r"[\w-]{22}", identity.out)
    shell.run("ClusterTool", "list-endpoints")
    shell.run("TopicCommand", "--create", "--topic", "led", "--partitions", "2")
    elections = shell.file("elect.json", '{"partitions": [{"topic": "led", "partition": 1}]}')
    for kind in ("PREFERRED", "UNCLEAN"):
        one = ("--election-type", kind, "--topic", "led", "--partition")
        shell.run("LeaderElectionCommand", *one, "0")
        shell.run("LeaderElectionCommand", *one, "9")
        shell.run("LeaderElectionCommand", "--election-type", kind, "--path-to-json-file", elections)
    shell.run("AclCommand", "--list")
    shell.run("FeatureCommand", "describe")


def reassignment(shell: Shell) -> None:
    shell.run("TopicCommand", "--create", "--topic", "moved", "--partitions", "2")
    plan = [{"topic": "moved", "partition": number, "replicas": [1]} for number in (0, 1)]
    file = shell.file("plan.json", json.dumps({"version": 1, "partitions": plan}))
    wanted = shell.file("topics.json", json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    away = shell.file("away.json", json.dumps({"version": 1, "partitions": [{**plan[0], "replicas": [7]}]}))
    shell.run(
        "ReassignPartitionsCommand", "--generate", "--topics-to-move-json-file", wanted, "--broker-list", "1"
    )
    shell.run("ReassignPartitionsCommand", "--execute", "--reassignment-json-file", file)
    shell.run("ReassignPartitionsCommand", "--verify", "--reassignment-json-file", file)
    shell.run("ReassignPartitionsCommand", "--execute", "--reassignment-json-file", away)
    shell.run("ReassignPartitionsCommand", "--list")
    shell.run("ReassignPartitionsCommand", "--cancel", "--reassignment-json-file", file)


def log_dirs(shell: Shell) -> None:
    shell.run("TopicCommand", "--create", "--topic", "stored", "--partitions", "2")

    def both_there() -> bool:  # Kafka makes the folders after it has answered
        return "stored-1" in shell.ask("LogDirsCommand", "--describe", "--topic-list", "stored").out

    shell.until("both partitions have a folder", both_there)
    said = shell.ask("LogDirsCommand", "--describe", "--topic-list", "stored")
    found = json.loads(said.out.splitlines()[-1])
    for broker in found["brokers"]:
        for folder in broker["logDirs"]:
            places = sorted((p["partition"], p["size"], p["isFuture"]) for p in folder["partitions"])
            shell.note(f"broker {broker['broker']}: error {folder['error']}, {places}")
    shell.run("LogDirsCommand", "--describe", "--broker-list", "1,7", "--topic-list", "stored")
    nothing = shell.ask("LogDirsCommand", "--describe", "--topic-list", "absent")
    brokers = json.loads(nothing.out.splitlines()[-1])["brokers"]
    shell.note(f"{[folder['partitions'] for broker in brokers for folder in broker['logDirs']]}")


def compatibility(shell: Shell) -> None:
    """Kafka's own test of what a broker has; it ends with 0 when all is as said."""
    shell.run(
        "ClientCompatibilityTest",
        *("--topic", "compatible", "--num-cluster-nodes", "1"),
        *("--offsets-for-times-supported", "true", "--cluster-id-supported", "true"),
        *("--expect-record-too-large-exception", "true", "--create-topics-supported", "true"),
        *("--describe-acls-supported", "false", "--describe-configs-supported", "true"),
        "--idempotent-producer-supported", "true",
    )  # fmt: skip
