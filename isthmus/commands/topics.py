"""`isthmus topics …`: list, describe, create, grow and delete topics of any Kafka cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewPartitions, NewTopic

from isthmus.kafka_admin import Cluster, Json, TopologyFile, Yes, admin_client, answer, answers, end_with
from isthmus.output import USAGE, confirm, fail, print_json, print_table, say
from protocol.counted import counted

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Topics of a Kafka cluster.")
Name = Annotated[str, typer.Argument(help="topic", show_default=False)]
Names = Annotated[list[str], typer.Argument(help="topics", show_default=False)]


@app.command("list")
def list_topics(
    cluster: Cluster,
    internal: Annotated[bool, typer.Option("--internal", help="also internal topics (__…)")] = False,
    file: TopologyFile = None,
    as_json: Json = False,
) -> None:
    """List topics with their partitions and replication factor.

    Example: isthmus topics list --cluster east
    """
    metadata = admin_client(cluster, file).list_topics(timeout=10)
    rows = [_summary(metadata, name) for name in sorted(metadata.topics) if internal or name[:2] != "__"]
    if as_json:
        print_json(rows)
    else:
        columns = ("topic", "partitions", "replication_factor", "without_leader")
        print_table(columns, [[row[column] for column in columns] for row in rows])


def _summary(metadata: ClusterMetadata, name: str) -> dict[str, Any]:
    partitions = metadata.topics[name].partitions.values()
    return {
        "topic": name,
        "partitions": len(partitions),
        "replication_factor": max((len(partition.replicas) for partition in partitions), default=0),
        "without_leader": sum(partition.leader < 0 for partition in partitions),
    }


@app.command()
def describe(name: Name, cluster: Cluster, file: TopologyFile = None, as_json: Json = False) -> None:
    """Show leader, replicas, in-sync replicas and offsets of every partition of a topic.

    Example: isthmus topics describe flights --cluster east
    """
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    client = admin_client(cluster, file)
    topic = _existing(client, name)
    spots = [TopicPartition(name, index) for index in sorted(topic.partitions)]
    first = _offsets(client, spots, OffsetSpec.earliest())
    last = _offsets(client, spots, OffsetSpec.latest())
    rows = [
        {
            "partition": index,
            "leader": partition.leader,
            "replicas": ",".join(map(str, partition.replicas)),
            "isr": ",".join(map(str, partition.isrs)),
            "start": first[index],
            "end": last[index],
        }
        for index, partition in sorted(topic.partitions.items())
    ]
    if as_json:
        print_json({"topic": name, "partitions": rows})
    else:
        columns = ("partition", "leader", "replicas", "isr", "start", "end")
        print_table(columns, [[row[column] for column in columns] for row in rows])


def _existing(client: AdminClient, name: str) -> Any:
    topic = client.list_topics(timeout=10).topics.get(name)
    if topic is None:
        fail(f"there is no topic '{name}'; isthmus topics list shows what there is", USAGE)
    return topic


def _offsets(client: AdminClient, spots: list[Any], spec: Any) -> dict[int, int | None]:
    from confluent_kafka import KafkaException

    found: dict[int, int | None] = {}
    for spot, future in client.list_offsets(dict.fromkeys(spots, spec)).items():
        try:
            found[spot.partition] = future.result(10).offset
        except (KafkaException, TimeoutError):
            found[spot.partition] = None  # no leader: unknown, which is not zero
    return found


@app.command()
def create(
    names: Names,
    cluster: Cluster,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="-1: the broker's default")] = -1,
    replication_factor: Annotated[int, typer.Option("--replication-factor", "-r")] = -1,
    config: Annotated[list[str] | None, typer.Option("--config", help="name=value, repeatable")] = None,
    file: TopologyFile = None,
) -> None:
    """Create topics.

    Example: isthmus topics create orders --partitions 6 --config retention.ms=-1 --cluster east
    """
    configs = pairs(config or [])
    wanted = [NewTopic(name, partitions, replication_factor, config=configs) for name in names]
    client = admin_client(cluster, file)  # must outlive its answers
    outcome = answers(client.create_topics(wanted), "topic")
    for name, reason in outcome.items():
        if reason is None:
            say(f"created {name}")
    end_with(outcome)


@app.command()
def grow(
    name: Name,
    cluster: Cluster,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="new total", show_default=False)],
    file: TopologyFile = None,
) -> None:
    """Add partitions to a topic (their number can never shrink; keys move to other partitions).

    Example: isthmus topics grow orders --partitions 12 --cluster east
    """
    client = admin_client(cluster, file)
    answer(client.create_partitions([NewPartitions(name, partitions)])[name], f"topic {name}")
    say(f"{name} has {counted(partitions, 'partition')}")


@app.command()
def delete(names: Names, cluster: Cluster, yes: Yes = False, file: TopologyFile = None) -> None:
    """Delete topics and all their records.

    Example: isthmus topics delete orders --cluster east --yes
    """
    client = admin_client(cluster, file)
    for name in names:
        _existing(client, name)
    confirm(f"these topics of {cluster} will be gone for ever: {', '.join(names)}", yes=yes)
    outcome = answers(client.delete_topics(names, operation_timeout=30), "topic")
    for name, reason in outcome.items():
        if reason is None:
            say(f"deleted {name}")
    end_with(outcome)


def pairs(texts: list[str]) -> dict[str, str]:
    """`name=value` texts as a mapping; anything else ends the command."""
    settings: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            fail(f"'{text}' is not name=value", USAGE)
        settings[name] = value
    return settings
