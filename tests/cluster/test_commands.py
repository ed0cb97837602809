"""The console commands against a real broker, as a person runs them: output, exit codes, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import BrokerProcess, Cluster
from tests.support.commands import isthmus

pytestmark = pytest.mark.cluster


class Shell:
    """Runs `isthmus …` against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, *arguments: str, text: str = "", cluster: bool = True) -> subprocess.CompletedProcess[str]:
        where = ["--cluster", self.bootstrap] if cluster else []
        return isthmus(*arguments, *where, text=text)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "isthmus", *arguments, "--cluster", self.bootstrap],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ok(self, *arguments: str, text: str = "") -> str:
        done = self.run(*arguments, text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--json"))


@pytest.fixture
def shell(broker: BrokerProcess) -> Shell:
    return Shell(broker.bootstrap)


def test_topic_life(shell: Shell) -> None:
    shell.ok("topics", "create", "life", "--partitions", "2", "--config", "retention.ms=-1")
    assert {"topic": "life", "partitions": 2, "replication_factor": 1, "without_leader": 0} in shell.json(
        "topics", "list"
    )
    shell.ok("topics", "grow", "life", "--partitions", "3")
    assert [row["end"] for row in shell.json("topics", "describe", "life")["partitions"]] == [0, 0, 0]
    assert shell.json("configs", "describe", "life") == [
        {"name": "retention.ms", "value": "-1", "source": "dynamic_topic_config"}
    ]
    shell.ok("configs", "set", "life", "retention.ms=60000")
    assert shell.json("configs", "describe", "life")[0]["value"] == "60000"
    shell.ok("configs", "set", "life", "--unset", "retention.ms")
    assert shell.json("configs", "describe", "life") == []
    refused = shell.run("topics", "delete", "life")
    assert refused.returncode == 2
    assert "nothing done" in refused.stderr
    shell.ok("topics", "delete", "life", "--yes")
    assert "life" not in shell.ok("topics", "list")


def test_produce_and_consume(shell: Shell) -> None:
    shell.ok("topics", "create", "words", "--partitions", "1")
    options = ("--key-separator", ":", "--compression", "zstd", "--header", "from=test")
    shell.ok("produce", "words", *options, text="a:one\nb:two\n")
    assert shell.ok("consume", "words", "--from-beginning", "--until-end") == "one\ntwo\n"
    lines = shell.ok("consume", "words", "--from-beginning", "--max", "1", "--json").splitlines()
    record = json.loads(lines[0])
    assert (record["key"], record["value"], record["headers"]) == ("a", "one", [["from", "test"]])


def test_the_topic_says_which_record_is_too_large(shell: Shell) -> None:
    shell.ok("topics", "create", "small", "--partitions", "1")
    refused = shell.run("produce", "small", text="x" * 2_000_000 + "\n")
    assert (refused.returncode, "Traceback" in refused.stderr) == (1, False)
    assert "1 of 1 records were not written" in refused.stderr
    assert "too large" in refused.stderr
    shell.ok("topics", "create", "large", "--partitions", "1", "--config", "max.message.bytes=3000000")
    shell.ok("produce", "large", text="x" * 2_000_000 + "\n")


def test_group_reset_shows_first_and_does_only_with_execute(shell: Shell) -> None:
    shell.ok("topics", "create", "read", "--partitions", "1")
    shell.ok("produce", "read", text="1\n2\n3\n")
    shell.ok("consume", "read", "--group", "readers", "--from-beginning", "--until-end")
    offsets = shell.json("groups", "describe", "readers")["offsets"]
    assert [(row["committed"], row["end"], row["lag"]) for row in offsets] == [(3, 3, 0)]

    plan = shell.run("groups", "reset", "readers", "--to", "earliest", "--json")
    assert json.loads(plan.stdout)["offsets"] == [{"topic": "read", "partition": 0, "old": 3, "new": 0}]
    shown = shell.run("groups", "reset", "readers", "--to", "1")
    assert "nothing was changed" in shown.stderr
    assert shell.json("groups", "describe", "readers")["offsets"][0]["committed"] == 3

    shell.ok("groups", "reset", "readers", "--to", "1", "--execute")
    assert shell.json("groups", "describe", "readers")["offsets"][0]["committed"] == 1
    outside = shell.run("groups", "reset", "readers", "--to", "99", "--execute")
    assert "99 is outside 0…3, so 3" in outside.stderr
    late = shell.json("groups", "reset", "readers", "--to", "2100-01-01T00:00")
    assert late["offsets"][0]["new"] == 3  # a time behind the last record is the end, not the start
    missing = shell.run("groups", "reset", "readers", "--to", "latest", "--topic", "nowhere", "--execute")
    assert missing.returncode == 2
    assert shell.json("groups", "describe", "readers")["offsets"][0]["committed"] == 3

    lag = {row["group"]: row for row in shell.json("monitor")}
    assert lag["readers"]["lag"] == 0
    shell.ok("groups", "delete", "readers", "--yes")
    assert "readers" not in shell.ok("groups", "list")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("topics", "describe", "nowhere"), 2, "there is no topic 'nowhere'"),
        (("topics", "grow", "nowhere", "--partitions", "3"), 2, "topic nowhere: "),
        (("topics", "delete", "nowhere", "--yes"), 2, "there is no topic 'nowhere'"),
        (("configs", "describe", "nowhere"), 2, "settings of nowhere: "),
        (("configs", "set", "nowhere", "retention.ms=1"), 2, "settings of nowhere: "),
        (("replicas", "compare", "--topic", "nowhere"), 2, "topic 'nowhere': "),
        (("groups", "describe", "nobody"), 2, "there is no group 'nobody'"),
        (("groups", "delete", "nobody", "--yes"), 2, "group nobody: "),
        (("groups", "reset", "nobody", "--to", "latest", "--execute"), 2, "has committed nothing"),
        (("topics", "create", "a/b"), 1, "a/b"),
        (("topics", "create", "x", "--config", "retention"), 2, "is not name=value"),
        (("topics", "create", "x", "--config", "retention.mss=1"), 1, "retention.mss"),
        (("consume", "nowhere"), 2, "there is no topic 'nowhere'"),
        (("configs", "min-isr", "restore", "--undo", "nowhere.json"), 2, "nowhere.json: nothing was lowered"),
        (("elect", "--topic", "nowhere"), 2, "there is no topic 'nowhere'"),
        (("elect", "--topic", "resettable:99"), 2, "no partition 99 in topic 'resettable': it has 0…0"),
        (("elect", "--topic", "nowhere", "--preferred"), 2, "there is no topic 'nowhere'"),
        (("produce", "words2", "--key-separator", ":"), 2, "has no ':'"),
        (("produce", "a/b"), 1, "1 of 1 records were not written"),
        (
            ("produce", "resettable", "--partition", "9"),
            2,
            "there is no partition 9 in topic 'resettable': it has 0…0",
        ),
        (("groups", "reset", "g", "--to", "sometime", "--topic", "resettable"), 2, "is not understood"),
    ],
)
def test_mistakes_are_one_clear_line(shell: Shell, arguments: tuple[str, ...], code: int, words: str) -> None:
    if {"resettable", "resettable:99"} & {*arguments}:
        shell.run("topics", "create", "resettable", "--partitions", "1")
    done = shell.run(*arguments, text="no separator\n")
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_topic_that_is_not_there_and_is_not_made_by_writing_is_wrong_usage(
    cluster: Callable[[int], Cluster],
) -> None:
    made = cluster(0)
    made.add(1, settings={"auto.create.topics.enable": "false"}).start()
    done = Shell(made.bootstrap).run("produce", "nowhere", text="one\ntwo\n")
    assert done.returncode == 2, done.stderr
    assert "there is no topic 'nowhere'" in done.stderr


def test_writes_that_are_refused_for_long_are_said_with_their_reason(shell: Shell) -> None:
    """Kafka refuses acks=all below min.insync.replicas; librdkafka tries again and says nothing."""
    shell.ok("topics", "create", "refused", "--partitions", "1", "--config", "min.insync.replicas=2")
    producing = shell.begin("produce", "refused")
    assert producing.stdin is not None
    assert producing.stderr is not None
    try:
        producing.stdin.write("one\n")
        producing.stdin.close()
        told = producing.stderr.readline()
        assert told.startswith("no acknowledgement for ")
        assert "1 record waiting" in told
        assert "refused-0 has 1 in sync, min.insync.replicas is 2 (NOT_ENOUGH_REPLICAS)" in told
        shell.ok("configs", "set", "refused", "min.insync.replicas=1")
        assert producing.wait(60) == 0
    finally:
        producing.kill()
        producing.wait()
        producing.stderr.close()


def test_no_broker_is_said_with_its_address() -> None:
    done = Shell("127.0.0.1:1").run("topics", "list")
    assert done.returncode == 1
    assert "127.0.0.1:1 cannot be reached (PLAINTEXT): " in done.stderr


def test_log_dump_reads_a_segment_and_finds_damage(
    shell: Shell, broker: BrokerProcess, tmp_path: Path
) -> None:
    shell.ok("topics", "create", "dumped", "--partitions", "1")
    shell.ok("produce", "dumped", text="seen\n")
    [segment] = broker.directory.rglob("dumped-0/*.log")
    done = shell.run("log", "dump", str(segment), "--records", "--json", cluster=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [batch] = json.loads(done.stdout)["batches"]
    assert batch["content"][0]["value"] == "seen"
    assert {"producer_id", "producer_epoch", "sequence"} <= batch.keys()
    damaged = bytearray(segment.read_bytes())
    damaged[-1] ^= 1
    copy = tmp_path / "damaged.log"
    copy.write_bytes(damaged + b"torn")
    found = shell.run("log", "dump", str(copy), "--json", cluster=False)
    assert found.returncode == 3
    content = json.loads(found.stdout)
    assert content["batches"][0]["crc"] == "WRONG"
    assert content["bytes_after_last_batch"] == 4
