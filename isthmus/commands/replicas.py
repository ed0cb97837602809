"""`isthmus replicas …`: whether the replicas of partitions hold the same bytes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.kafka_admin import Cluster, Json, TopologyFile
from isthmus.output import DIFFERENCES, FAILED, USAGE, fail, note, print_json, print_table
from isthmus.topologies import access_of, named_outage

if TYPE_CHECKING:
    from audit.replicas import PartitionReplicas

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Replicas of partitions.")


@app.callback()
def replicas() -> None:
    """Replicas of partitions."""


@app.command()
def compare(
    cluster: Cluster,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="repeatable; without it all topics")
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="let Spark's workers do it, for many or large partitions")
    ] = False,
    file: TopologyFile = None,
    as_json: Json = False,
) -> None:
    """Read every replica from its own broker and compare them batch by batch, bytes and offsets.

    Any Kafka cluster from 2.4 on: consumers may read followers (Fetch 11, KIP-392), so nothing has to be set
    up, but every broker must be reachable from here. Compared is what consumers may read; compacted topics
    record by record, as each replica is cleaned by itself. Ends with 0 if all replicas are equal, 3 if they
    differ, 1 if a replica could not be read to its end.

    Examples:

      isthmus replicas compare --cluster localhost:9092 --topic orders

      isthmus replicas compare --cluster main --json
    """
    from audit.replicas import partitions_of
    from protocol.errors import ErrorCode, ProtocolError

    try:
        asked = asyncio.run(partitions_of(access_of(cluster, file), topic or []))
    except (ProtocolError, OSError, TimeoutError) as error:
        unknown = getattr(error, "code", None) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        fail(named_outage(cluster, file) or str(error), USAGE if unknown else FAILED)
    found = _with_spark(asked) if spark else _here(asked)
    if as_json:
        print_json(found)
    else:
        _show(found)
    if any(each["differences"] for each in found):
        raise typer.Exit(DIFFERENCES)
    if any(each["unread"] for each in found):
        raise typer.Exit(FAILED)


def _here(asked: list[PartitionReplicas]) -> list[dict[str, Any]]:
    from audit.replicas import compare_all

    return [each.as_json() for each in asyncio.run(compare_all(asked))]


def _with_spark(asked: list[PartitionReplicas]) -> list[dict[str, Any]]:
    from audit.errors import AuditError
    from audit.replicas import compare_with_spark
    from audit.session import spark_session

    try:
        with spark_session() as session:
            return compare_with_spark(session, asked)
    except AuditError as error:
        fail(str(error))


def _show(found: list[dict[str, Any]]) -> None:
    print_table(
        ("partition", "replicas", "offsets", "compared", "bytes", "verdict"),
        [
            [
                f"{each['topic']}-{each['partition']}",
                ",".join(each["replicas"]),
                _range(each),
                each["compared"],
                each["bytes"],
                _verdict(each),
            ]
            for each in found
        ],
    )
    for each in found:
        name = f"{each['topic']}-{each['partition']}"
        for number, why in each["unread"].items():
            note(f"{name}, broker {number}: {why}")
        for example in each["examples"]:
            note(f"{name} differs at offset {example['offset']}: {_differs(example['replicas'])}")


def _range(each: dict[str, Any]) -> str:
    extents = each["replicas"].values()
    if not extents:
        return "-"
    start = max(extent["start"] for extent in extents)
    return f"{start}..{max(extent['high_watermark'] for extent in extents)}"


def _verdict(each: dict[str, Any]) -> str:
    if each["differences"]:
        return f"{each['differences']} DIFFERENCES"
    return "not all read" if each["unread"] else "equal"


def _differs(replicas: dict[str, Any]) -> str:
    return "; ".join(
        f"broker {number} has nothing"
        if what is None
        else f"broker {number} " + ", ".join(f"{key} {value}" for key, value in what.items())
        for number, what in replicas.items()
    )
