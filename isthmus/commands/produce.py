"""`isthmus produce TOPIC`: lines from standard input to records."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from isthmus.kafka_admin import Cluster, TopologyFile, admin_client, client_settings
from isthmus.output import USAGE, fail, note
from isthmus.silence import Silence, reason
from protocol.counted import counted

_LARGEST = 100_000_000
"""Bytes of a record; brokers take no larger request (`socket.request.max.bytes`)."""
_NOT_THERE = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}
"""As the broker says it, or librdkafka."""


def produce(
    topic: Annotated[str, typer.Argument(help="topic", show_default=False)],
    cluster: Cluster,
    key_separator: Annotated[
        str | None, typer.Option(help="text between key and value; without it there are no keys")
    ] = None,
    partition: Annotated[int, typer.Option(help="-1: by key, else spread")] = -1,
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd")] = "none",
    header: Annotated[list[str] | None, typer.Option(help="name=value on every record")] = None,
    file: TopologyFile = None,
) -> None:
    """Write each line of standard input as a record; ends with 0 only when all were acknowledged.

    Says so, and why if it shows, when nothing is acknowledged for some seconds.

    Example: echo 'k1:hello' | isthmus produce orders --key-separator : --cluster east
    """
    from isthmus.commands.topics import pairs

    headers: list[tuple[str, str | bytes | None]] = list(pairs(header or []).items())
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        silence.heard()
        if error is not None:
            failures.append(error)

    admin = admin_client(cluster, file)
    silence = Silence(note, lambda: reason(admin, topic))
    settings = {**client_settings(cluster, file), "enable.idempotence": True, "linger.ms": 20}
    settings["message.max.bytes"] = _LARGEST  # what is too large is the topic's to say
    try:
        producer = Producer({**settings, "compression.type": compression})
    except KafkaException as error:
        fail(str(error), USAGE)
    count = 0
    for line in sys.stdin.buffer:
        key, value = _split(line.rstrip(b"\n"), key_separator)
        producer.poll(0)
        silence.look(len(producer))
        while True:
            try:
                producer.produce(
                    topic, value, key, partition=partition, headers=headers, on_delivery=delivered
                )
                break
            except BufferError:
                producer.poll(0.1)
                silence.look(len(producer))
            except KafkaException as error:  # it never left this process
                failures.append(error.args[0])
                break
        count += 1
    while waiting := producer.flush(0.5):
        silence.look(waiting)
    if failures:
        reasons = {error.name() for error in failures}
        _known(admin, cluster, topic, partition, reasons, none_written=len(failures) == count)
        fail(f"{len(failures)} of {count} records were not written; the first: {failures[0].str()}")
    note(f"{counted(count, 'record')} written to {topic}")


def _known(
    admin: AdminClient, cluster: str, topic: str, partition: int, reasons: set[str], *, none_written: bool
) -> None:
    """Ends the command for a name that is not there. Asked for behind the writes: they may make a topic."""
    if not none_written or not reasons <= _NOT_THERE:
        return
    found = admin.list_topics(timeout=10).topics.get(topic)
    if found is None or not found.partitions:
        fail(
            f"there is no topic '{topic}'; isthmus topics list --cluster {cluster} shows what there is", USAGE
        )
    if partition not in {-1, *found.partitions}:
        there = f"it has 0…{len(found.partitions) - 1}"
        fail(f"there is no partition {partition} in topic '{topic}': {there}", USAGE)


def _split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    if not found:
        fail(f"the line {line[:60]!r} has no '{separator}' between key and value", USAGE)
    return key, value
