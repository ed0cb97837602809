"""Scenarios: what the console tools, the offset tools and the log tool say about records."""

import json
import re
from pathlib import Path

from tests.interop.java.shell import Shell

_READ = ("--timeout-ms", "15000", "--from-beginning", "--max-messages")
_ALL = ("timestamp", "partition", "offset", "epoch", "headers", "key", "value")
PRINT_ALL = tuple(
    word for name in _ALL if name != "timestamp" for word in ("--formatter-property", f"print.{name}=true")
)


def produce(shell: Shell, topic: str, text: str, *options: str) -> None:
    shell.run("ConsoleProducer", "--topic", topic, *options, text=text)


def numbers(start: int, count: int) -> str:
    return "".join(f"k{number}:v{number}\n" for number in range(start, start + count))


def console(shell: Shell) -> None:
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    produce(shell, "words", "one\ntwo\n\nfour\n")
    shell.run("ConsoleConsumer", "--topic", "words", *_READ, "4")
    produce(shell, "keyed", numbers(0, 5), *keyed)
    rich = ("--reader-property", "parse.headers=true", "--reader-property", "null.marker=NULL")
    produce(shell, "keyed", "a:1,b:\tk\tv\nNULL\tNULL\tNULL\n", "--reader-property", "parse.key=true", *rich)
    shell.run("ConsoleConsumer", "--topic", "keyed", *PRINT_ALL, *_READ, "7")
    at = ("--topic", "keyed", "--partition", "0", "--timeout-ms", "15000", "--max-messages", "2")
    shell.run("ConsoleConsumer", *at, "--offset", "3", *PRINT_ALL)
    shell.run("ConsoleConsumer", *at, "--offset", "earliest", "--isolation-level", "read_committed")
    shell.run(
        "ConsoleConsumer", "--topic", "keyed", "--partition", "9", "--offset", "3", "--timeout-ms", "500"
    )
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        produce(shell, f"in-{codec}", f"in {codec}\n" * 20, "--compression-codec", codec)
        shell.run("ConsoleConsumer", "--topic", f"in-{codec}", *PRINT_ALL, *_READ, "20")
    for setting in ("acks=0", "acks=1", "enable.idempotence=false"):
        produce(shell, "settings-of-producers", f"{setting}\n", "--command-property", setting)
        shell.until(setting, lambda setting=setting: setting in _values(shell, "settings-of-producers"))
    two = ("--include", "keyed|words", "--timeout-ms", "15000", "--max-messages", "11", "--from-beginning")
    shell.run("ConsoleConsumer", *two, any_order=True)
    big = "x" * 1_100_000 + "\n"
    produce(shell, "words", big)
    produce(shell, "words", big, "--command-property", "max.request.size=2000000")
    shell.run("ConsoleConsumer", "--topic", "absent.topic", "--timeout-ms", "500", "--from-beginning")


def _values(shell: Shell, topic: str) -> str:
    return shell.ask("ConsoleConsumer", "--topic", topic, "--from-beginning", "--timeout-ms", "500").out


def offsets(shell: Shell) -> None:
    shell.run("TopicCommand", "--create", "--topic", "dated", "--partitions", "2")
    produce(shell, "dated", numbers(0, 10), "--reader-property", "parse.key=true", *_COLON)
    for time in ("-1", "-2", "latest", "earliest", "0", "4102444800000"):
        shell.run("GetOffsetShell", "--topic", "dated", "--time", time, any_order=True)
    produce(shell, "newest", "only one: of several in one batch the newest depends on the clock\n")
    for time in ("-3", "max-timestamp"):
        shell.run("GetOffsetShell", "--topic", "newest", "--time", time)
    for time in ("-4", "earliest-local", "latest-tiered"):
        shell.run("GetOffsetShell", "--topic", "dated", "--time", time, any_order=True)
    shell.run("GetOffsetShell", "--topic-partitions", "dat.*:0-2", any_order=True)
    shell.run("GetOffsetShell", "--topic-partitions", "dated:1", "--exclude-internal-topics", any_order=True)
    shell.run("GetOffsetShell", "--topic", "dated", "--partitions", "0,9", any_order=True)
    shell.run("GetOffsetShell", "--topic", "absent")


def delete_records(shell: Shell) -> None:
    shell.run("TopicCommand", "--create", "--topic", "cut", "--partitions", "3")
    produce(shell, "cut", numbers(0, 60), "--reader-property", "parse.key=true", *_COLON)
    wanted = [("cut", 0, 1), ("cut", 1, -1), ("cut", 2, 99), ("cut", 0, 0), ("cut", 0, 7)]
    for topic, partition, offset in wanted:
        body = {"partitions": [{"topic": topic, "partition": partition, "offset": offset}], "version": 1}
        file = shell.file("cut.json", json.dumps(body))
        shell.record(
            [f"DeleteRecordsCommand {topic}-{partition} {offset}"],
            shell.ask("DeleteRecordsCommand", "--offset-json-file", file),
        )
    shell.run("GetOffsetShell", "--topic", "cut", "--time", "-2", any_order=True)


def log_files(shell: Shell) -> None:
    """DumpLogSegments on the folder that the broker says it stores the partition in."""
    produce(shell, "dumped", numbers(0, 30), "--reader-property", "parse.key=true", *_COLON)
    produce(shell, "dumped", numbers(0, 30), "--compression-codec", "lz4")
    said = shell.ask("LogDirsCommand", "--describe", "--topic-list", "dumped").out
    folder = Path(json.loads(said.splitlines()[-1])["brokers"][0]["logDirs"][0]["logDir"], "dumped-0")
    for options in (("--print-data-log",), ("--deep-iteration", "--verify-index-only")):
        outcome = shell.tools.run("DumpLogSegments", "--files", str(folder / f"{0:020}.log"), *options)
        text = re.sub(r"(producerId|crc|CreateTime|size|position|deleteHorizonMs): \S+", r"\1", outcome.out)
        shell.record(["DumpLogSegments", *options], type(outcome)(outcome.code, text, outcome.err))
    for kind, option in (("index", "--index-sanity-check"), ("timeindex", "--verify-index-only")):
        for file in folder.glob(f"*.{kind}"):  # we make them when there is something to index, Kafka always
            outcome = shell.tools.run("DumpLogSegments", "--files", str(file), option)
            assert outcome.code == 0, outcome.err
            assert "mismatch" not in outcome.out.lower(), outcome.out


_COLON = ("--reader-property", "key.separator=:")


def internal_topics(shell: Shell) -> None:
    """Formatters for __consumer_offsets, fed by a group that joins, commits and goes."""
    produce(shell, "for-offsets", numbers(0, 4))
    shell.run("ConsoleConsumer", "--topic", "for-offsets", "--group", "internal", *_READ, "4")
    package = "org.apache.kafka.tools.consumer"
    for formatter, wanted in (
        ("OffsetsMessageFormatter", '"group":"internal"'),
        (
            "GroupMetadataMessageFormatter",
            '"group":"internal"}},"value":{"version":3,"data":{"protocolType":"consumer"',
        ),
    ):
        command = (
            *("--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "1500"),
            *("--formatter", f"{package}.{formatter}"),
        )
        said = shell.ask("ConsoleConsumer", *command).out.replace("}{", "}\n{")
        found = [line for line in said.splitlines() if wanted in line]
        for line in found:
            text = re.sub(r'"(subscription|assignment|memberId|clientId)":"[^"]*"', r'"\1":"…"', line)
            text = re.sub(
                r'"version":[34],"data":\{"offset"(.*?)(,"topicId":"[\w-]*")?\}', r'"data":{"offset"\1}', text
            )
            shell.note(text)
        assert found, f"{formatter} shows nothing of the group"
