"""`isthmus links translate`: where offsets, groups and times of one side are on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.links import File, Json, LinkName, link_of
from isthmus.output import DIFFERENCES, USAGE, fail, print_json, print_table
from isthmus.stores import run_connectors
from isthmus.times import HELP as TIMES
from isthmus.times import moment_ms, shown
from isthmus.topologies import DEFAULT_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.client import ClusterClient
    from protocol.types import TopicPartition
    from replicator.by_time import Place
    from replicator.settings import ClusterEnd, LinkSettings
    from replicator.translate import GroupTranslation
    from transfer.ledger import PartitionLedger

_COLUMNS = ("topic", "partition", "offset", "from", "exact", "why_not")
_TIMED = ("topic", "partition", "offset", "from", "exact", "record_time", "note", "why_not")


def translate(
    link: LinkName,
    group: Annotated[str | None, typer.Option(help="all committed offsets of this group")] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="with --offset or --time; its name on the side asked")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="with --offset: 0 by default; with --time: all")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", "-o", min=0, help="of the source, or with --back of the target")
    ] = None,
    time: Annotated[str | None, typer.Option("--time", help=f"the first record since then: {TIMES}")] = None,
    back: Annotated[bool, typer.Option("--back", help="from the target to the source (failback)")] = False,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
) -> None:
    """Translate positions exactly: a group's committed ones, a single offset, or a time. Nothing is changed.

    With --time the first committed record at or after it is looked up at the source (with --back at the
    target) and its place on the other side told; where no record is that late yet, that of the end.

    Not exact means: more was read than is copied, and the position is held back to what is there. Ends with 3
    when there is a position that has no translation (why_not says why).

    Examples:

      isthmus links translate 'east->west' --group flight-board

      isthmus links translate 'east->west' --topic orders --partition 3 --offset 41077

      isthmus links translate 'east->west' --back --topic east.orders --partition 3 --offset 40999

      isthmus links translate 'east->west' --topic orders --time 2026-01-31T08:00Z
    """
    _check(group, topic, partition, offset, time)
    time_ms = moment_ms(time, "--time") if time is not None else None
    settings, asked = link_of(link, file)
    if group is not None:
        rows = run_connectors(lambda: _of_group(settings, group, back), asked)
        if not rows:
            side = settings.target if back else settings.source
            fail(f"group {group} has committed nothing at {side.alias}", USAGE)
    elif time_ms is not None:
        rows = run_connectors(lambda: _of_time(settings, str(topic), partition, time_ms, back), asked)
    else:
        rows = run_connectors(
            lambda: _of_offset(settings, str(topic), partition or 0, int(offset or 0), back), asked
        )
    if as_json:
        when = {} if time_ms is None else {"time_ms": time_ms}
        print_json({"link": link, "back": back, **when, "positions": rows})
    else:
        columns = _COLUMNS if time is None else _TIMED
        cells = [row | {"record_time": shown(row.get("timestamp"))} for row in rows]
        print_table(columns, [[row[column] for column in columns] for row in cells])
    if any(row["offset"] is None for row in rows):
        raise typer.Exit(DIFFERENCES)


def _check(
    group: str | None, topic: str | None, partition: int | None, offset: int | None, time: str | None
) -> None:
    given = [
        name
        for name, value in (("--group", group), ("--offset", offset), ("--time", time))
        if value is not None
    ]
    if len(given) > 1:
        fail(f"{' and '.join(given)} exclude each other: ask for one at a time", USAGE)
    if group is not None and (topic is not None or partition is not None):
        fail(
            "--group means all that it has committed: --topic and --partition go with --offset or --time",
            USAGE,
        )
    if group is None and (topic is None or not given):
        fail("say either --group G, or --topic T --partition P --offset O, or --topic T --time WHEN", USAGE)


async def _of_group(settings: LinkSettings, group: str, back: bool) -> list[dict[str, Any]]:
    async with _asked(settings, back).at_once() as client:
        committed = {tp: found.offset for tp, found in (await client.committed(group)).items()}
        topic_ids = await _topic_ids(client, {tp.topic for tp in committed})
    return _rows(committed, await _translated(settings, committed, back, topic_ids))


async def _of_offset(
    settings: LinkSettings, topic: str, partition: int, offset: int, back: bool
) -> list[dict[str, Any]]:
    """The source is not asked: it may be gone."""
    from protocol.types import TopicPartition

    committed = {TopicPartition(topic, partition): offset}
    return _rows(committed, await _translated(settings, committed, back))


async def _of_time(
    settings: LinkSettings, topic: str, partition: int | None, time_ms: int, back: bool
) -> list[dict[str, Any]]:
    from protocol.errors import ErrorCode
    from protocol.types import TopicPartition
    from replicator.by_time import first_since

    side = _asked(settings, back)
    async with side.at_once() as client:
        known = (await client.metadata([topic])).topics.get(topic)
        if known is None or known.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            fail(f"there is no topic '{topic}' at {side.alias}", USAGE)
        if known.error:
            fail(f"topic {topic} at {side.alias}: {known.error.name}")
        if partition is not None and partition not in known.partitions:
            fail(f"topic {topic} at {side.alias} has no partition {partition}", USAGE)
        numbers = sorted(known.partitions) if partition is None else [partition]
        places, unknown = await first_since(client, [TopicPartition(topic, n) for n in numbers], time_ms)
        topic_ids = await _topic_ids(client, {topic})
    positions = {tp: place.offset for tp, place in places.items()}
    # after the look-up: what was copied meanwhile counts
    rows = _rows(positions, await _translated(settings, positions, back, topic_ids), places)
    return rows + [
        _row(tp, None, None, None, why_not=reason) | {"timestamp": None, "note": None}
        for tp, reason in sorted(unknown.items())
    ]


def _asked(settings: LinkSettings, back: bool) -> ClusterEnd:
    return settings.target if back else settings.source


async def _topic_ids(client: ClusterClient, topics: set[str]) -> dict[str, str]:
    """Of those that have one (brokers before 2.8 have none)."""
    return {name: topic_id for name, topic_id in (await _ids_there(client, topics)).items() if topic_id}


async def _ids_there(client: ClusterClient, topics: set[str]) -> dict[str, str]:
    """Of all that exist; empty where they have none."""
    from protocol.errors import ErrorCode
    from protocol.types import ZERO_UUID, uuid_to_text

    known = (await client.metadata(topics)).topics if topics else {}
    return {
        name: "" if one.topic_id == ZERO_UUID else uuid_to_text(one.topic_id)
        for name, one in known.items()
        if one.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


async def _translated(
    settings: LinkSettings,
    positions: Mapping[TopicPartition, int],
    back: bool,
    topic_ids: Mapping[str, str] | None = None,
) -> GroupTranslation:
    """`topic_ids`: of the source, if it was asked; what was created again is another topic."""
    from replicator.progress import read_ledgers
    from replicator.translate import Direction, translate_group

    async with settings.target.at_once() as client:
        ledgers = await read_ledgers(client, settings.name)
        if back:
            topic_ids = await _topic_ids(client, {tp.topic for tp in positions})
            at_end = await _at_end(client, positions, ledgers)
            return translate_group(positions, ledgers, Direction.TO_SOURCE, topic_ids, nothing_behind=at_end)
        copies = {ledgers[tp].target.topic for tp in positions if tp in ledgers}
        there_ids = await _ids_there(client, copies)
    return translate_group(positions, ledgers, Direction.TO_TARGET, topic_ids, there_ids=there_ids)


async def _at_end(
    client: ClusterClient,
    positions: Mapping[TopicPartition, int],
    ledgers: Mapping[TopicPartition, PartitionLedger],
) -> set[TopicPartition]:
    """Partitions of the target that were read behind the last copied record and hold nothing there."""
    from protocol.errors import KafkaError
    from replicator.by_time import nothing_between
    from replicator.translate import by_target

    found = set()
    copies = by_target(ledgers)
    for tp, offset in positions.items():
        end = copies[tp].runs.target_end if tp in copies else offset
        try:
            if offset > end and await nothing_between(client, tp, end, offset):
                found.add(tp)
        except KafkaError:  # it is held back, then, as others are that cannot be known
            continue
    return found


def _rows(
    asked: Mapping[TopicPartition, int],
    found: GroupTranslation,
    places: Mapping[TopicPartition, Place] | None = None,
) -> list[dict[str, Any]]:
    """`places`: of one topic, with what stands at each; a copied partition keeps its number."""
    at = {tp.partition: place for tp, place in (places or {}).items()}
    rows = [
        _row(tp, position.offset, position.committed, at.get(tp.partition), exact=position.exact)
        for tp, position in sorted(found.positions.items())
    ]
    return rows + [
        _row(tp, None, asked[tp], at.get(tp.partition), why_not=reason)
        for tp, reason in sorted(found.skipped.items())
    ]


def _row(
    tp: TopicPartition,
    offset: int | None,
    before: int | None,
    place: Place | None,
    *,
    exact: bool = False,
    why_not: str | None = None,
) -> dict[str, Any]:
    row = {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": offset,
        "from": before,
        "exact": exact,
        "why_not": why_not,
    }
    if place is None:
        return row
    return row | {"exact": exact and place.exact, "timestamp": place.timestamp, "note": place.note}
