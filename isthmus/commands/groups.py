"""`isthmus groups …`: list, describe, reset and delete consumer groups of any Kafka cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from isthmus.kafka_admin import Cluster, Json, TopologyFile, Yes, admin_client, answer, end_with
from isthmus.output import USAGE, confirm, fail, note, print_json, print_table, say
from isthmus.times import moment_ms
from protocol.counted import counted

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Consumer groups of a Kafka cluster.")
Group = Annotated[str, typer.Argument(help="group", show_default=False)]


@app.command("list")
def list_groups(cluster: Cluster, file: TopologyFile = None, as_json: Json = False) -> None:
    """List groups and their states.

    Example: isthmus groups list --cluster east
    """
    client = admin_client(cluster, file)  # must outlive its answer
    listed = answer(client.list_consumer_groups(), "groups")
    rows = sorted((group.group_id, group.state.name.lower()) for group in listed.valid)
    if as_json:
        print_json([{"group": group, "state": state} for group, state in rows])
    else:
        print_table(("group", "state"), rows)
    end_with({str(index): error.str() for index, error in enumerate(listed.errors)}, told=True)


@app.command()
def describe(group: Group, cluster: Cluster, file: TopologyFile = None, as_json: Json = False) -> None:
    """Show members, committed offsets and lag of a group. Negative lag means offsets ahead of the data.

    Example: isthmus groups describe flight-board --cluster east
    """
    client = admin_client(cluster, file)
    described = answer(client.describe_consumer_groups([group])[group], f"group {group}")
    committed = _committed(client, group)
    rows = _lag_rows(client, committed, _owners(described))
    if described.state is ConsumerGroupState.DEAD and not rows:
        fail(f"there is no group '{group}'; isthmus groups list shows what there is", USAGE)
    state = described.state.name.lower()
    if as_json:
        print_json({"group": group, "state": state, "members": len(described.members), "offsets": rows})
        return
    say(f"{group}: {state}, {counted(len(described.members), 'member')}")
    columns = ("topic", "partition", "committed", "end", "lag", "member")
    print_table(columns, [[row[column] for column in columns] for row in rows])


@app.command()
def reset(
    group: Group,
    cluster: Cluster,
    to: Annotated[
        str,
        typer.Option(
            help="earliest, latest, an offset, or a time (2026-01-31T08:00, or 15m: ago)", show_default=False
        ),
    ],
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="topic or topic:partition; all committed ones")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="really do it; else only show the plan")] = False,
    file: TopologyFile = None,
    as_json: Json = False,
) -> None:
    """Plan, and with --execute do, a reset of a group's offsets. Refused while the group has members.

    Where a link writes the group's positions, one that is taken back at the target is set forward again while
    nobody reads with it: have the link leave it alone first (isthmus links set LINK groups_exclude=...).

    Example: isthmus groups reset flight-board --to earliest --topic flights --cluster east --execute
    """
    client = admin_client(cluster, file)
    described = answer(client.describe_consumer_groups([group])[group], f"group {group}")
    live = described.state not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
    if execute and live:
        fail(f"group {group} has {len(described.members)} active members: stop them first; nothing changed")
    committed = _committed(client, group)
    if not topic and not committed:
        fail(f"group {group} has committed nothing: name it right, or topics with --topic", USAGE)
    spots = _spots(client, topic, committed)
    plan: list[dict[str, Any]] = [
        {"topic": spot.topic, "partition": spot.partition, "old": committed.get(_key(spot)), "new": new}
        for spot, new in _targets(client, spots, to).items()
    ]
    if execute:
        offsets = [TopicPartition(row["topic"], row["partition"], row["new"]) for row in plan]
        request = [ConsumerGroupTopicPartitions(group, offsets)]
        answer(client.alter_consumer_group_offsets(request)[group], f"group {group}")
    if as_json:
        print_json({"group": group, "executed": execute, "offsets": plan})
    else:
        print_table(("topic", "partition", "old", "new"), [list(row.values()) for row in plan])
        note("done" if execute else "nothing was changed: --execute does it")


@app.command()
def delete(group: Group, cluster: Cluster, yes: Yes = False, file: TopologyFile = None) -> None:
    """Delete a group without members, and all its committed offsets.

    Example: isthmus groups delete flight-board --cluster east --yes
    """
    client = admin_client(cluster, file)
    confirm(f"group {group} of {cluster} and its committed offsets will be gone", yes=yes)
    answer(client.delete_consumer_groups([group])[group], f"group {group}")
    say(f"deleted {group}")


def _key(spot: TopicPartition) -> tuple[str, int]:
    return spot.topic, spot.partition


def _committed(client: AdminClient, group: str) -> dict[tuple[str, int], int]:
    future = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    spots = answer(future, f"offsets of {group}").topic_partitions
    return {_key(spot): spot.offset for spot in spots if spot.error is None and spot.offset >= 0}


def _owners(described: Any) -> dict[tuple[str, int], str]:
    return {
        _key(spot): member.client_id
        for member in described.members
        for spot in (member.assignment.topic_partitions if member.assignment else [])
    }


def _lag_rows(
    client: AdminClient, committed: dict[tuple[str, int], int], owners: dict[tuple[str, int], str]
) -> list[dict[str, Any]]:
    """Commits were read before ends, so that a moving end never shows as negative lag."""
    spots = sorted(committed.keys() | owners.keys())
    ends = _offsets_at(client, [TopicPartition(*spot) for spot in spots], OffsetSpec.latest())
    return [
        {
            "topic": spot[0],
            "partition": spot[1],
            "committed": committed.get(spot),
            "end": ends[spot],
            "lag": ends[spot] - committed[spot] if spot in committed and ends[spot] is not None else None,
            "member": owners.get(spot),
        }
        for spot in spots
    ]


def _offsets_at(client: AdminClient, spots: list[TopicPartition], spec: Any) -> dict[tuple[str, int], Any]:
    found: dict[tuple[str, int], Any] = {}
    for spot, future in client.list_offsets(dict.fromkeys(spots, spec)).items():
        try:
            found[_key(spot)] = future.result(10).offset
        except (KafkaException, TimeoutError):
            found[_key(spot)] = None  # no leader: unknown, which is not zero
    return found


def _spots(
    client: AdminClient, topics: list[str] | None, committed: dict[tuple[str, int], int]
) -> list[TopicPartition]:
    if not topics:
        return [TopicPartition(*spot) for spot in sorted(committed)]
    known = client.list_topics(timeout=10).topics
    spots = []
    for text in topics:
        name, _, index = text.partition(":")
        if name not in known:
            fail(f"there is no topic '{name}'; nothing changed", USAGE)
        partitions = sorted(known[name].partitions)
        if index and (not index.isdigit() or int(index) not in partitions):
            fail(f"topic {name} has no partition '{index}'; nothing changed", USAGE)
        spots += [TopicPartition(name, part) for part in ([int(index)] if index else partitions)]
    return spots


def _targets(client: AdminClient, spots: list[TopicPartition], to: str) -> dict[TopicPartition, int]:
    first = _offsets_at(client, spots, OffsetSpec.earliest())
    last = _offsets_at(client, spots, OffsetSpec.latest())
    unknown = [f"{spot.topic}:{spot.partition}" for spot in spots if last[_key(spot)] is None]
    if unknown:
        fail(f"no leader answers for {', '.join(unknown)}; nothing changed")
    if to in ("earliest", "latest"):
        return {spot: (first if to == "earliest" else last)[_key(spot)] for spot in spots}
    if to.lstrip("-").isdigit():
        return {spot: _clamped(spot, int(to), first[_key(spot)], last[_key(spot)]) for spot in spots}
    time_ms = moment_ms(to, "--to", "earliest, latest, an offset, ")
    at = _offsets_at(client, spots, OffsetSpec.for_timestamp(time_ms))
    return {spot: last[_key(spot)] if at[_key(spot)] in (None, -1) else at[_key(spot)] for spot in spots}


def _clamped(spot: TopicPartition, wanted: int, first: int, last: int) -> int:
    inside = min(max(wanted, first), last)
    if inside != wanted:
        note(f"{spot.topic}:{spot.partition}: {wanted} is outside {first}…{last}, so {inside}")
    return inside
