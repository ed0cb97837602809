"""`isthmus consume TOPIC`: records to standard output."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, Message, TopicPartition

from isthmus.kafka_admin import Cluster, TopologyFile, admin_client, client_settings
from isthmus.output import FAILED, USAGE, fail, note
from protocol.counted import counted

_C1 = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
"""JSON leaves these as they are, and a terminal obeys them."""


def consume(
    topic: Annotated[str, typer.Argument(help="topic", show_default=False)],
    cluster: Cluster,
    group: Annotated[str | None, typer.Option(help="read as this group and commit; else without one")] = None,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="not only new records")] = False,
    until_end: Annotated[bool, typer.Option("--until-end", help="stop at the present end")] = False,
    maximum: Annotated[int | None, typer.Option("--max", help="stop after so many records")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="one JSON object a record: offset, timestamp, key, headers, value")
    ] = False,
    file: TopologyFile = None,
) -> None:
    """Print the values of records, one a line, until Ctrl-C or the asked end.

    Example: isthmus consume flights --from-beginning --max 3 --json --cluster east
    """
    client = admin_client(cluster, file)
    known = client.list_topics(timeout=10).topics.get(topic)
    if known is None or not known.partitions:
        fail(
            f"there is no topic '{topic}'; isthmus topics list --cluster {cluster} shows what there is", USAGE
        )
    start = OFFSET_BEGINNING if from_beginning else OFFSET_END
    consumer = Consumer(
        {
            **client_settings(cluster, file),
            "group.id": group or "isthmus-consume",
            "enable.auto.commit": group is not None,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest" if from_beginning else "latest",
        }
    )
    if group is None:
        consumer.assign([TopicPartition(topic, index, start) for index in known.partitions])
    else:
        consumer.subscribe([topic])
    try:
        count = _print(consumer, set(known.partitions), until_end, maximum, as_json)
    except KeyboardInterrupt:
        if until_end or maximum is not None:
            raise  # what was asked for is not all there
        count = None
    finally:
        consumer.close()
    if count is not None:
        note(f"{counted(count, 'record')} read from {topic}")


def _print(
    consumer: Consumer, open_partitions: set[int], until_end: bool, maximum: int | None, as_json: bool
) -> int:
    count = 0
    out = sys.stdout.buffer
    while maximum is None or count < maximum:
        message = consumer.poll(1.0)
        if message is None:
            out.flush()
            continue
        error = message.error()
        if error is not None:
            if error.name() != "_PARTITION_EOF":
                out.flush()
                fail(error.str(), FAILED)
            open_partitions.discard(message.partition() or 0)
            if until_end and not open_partitions:
                break
            continue
        out.write((_json(message) if as_json else message.value() or b"") + b"\n")
        count += 1
    out.flush()
    return count


def _json(message: Message) -> bytes:
    headers: Any = message.headers() or []
    content = {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _text(message.key()),
        "headers": [[name, _text(value)] for name, value in headers],
        "value": _text(message.value()),
    }
    return json.dumps(content, ensure_ascii=False).translate(_C1).encode()


def _text(value: bytes | str | None) -> str | None:
    return value.decode("utf-8", errors="backslashreplace") if isinstance(value, bytes) else value
