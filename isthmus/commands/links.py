"""`isthmus links …`: what a link has copied, and where offsets are on the other side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.commands.link_check import check
from isthmus.commands.link_control import pause, restart, resume, set_settings
from isthmus.commands.link_gaps import acknowledge_gap
from isthmus.commands.link_status import status
from isthmus.commands.link_writers import grant_writers, revoke_writers
from isthmus.links import File, Json, LinkName, link_of
from isthmus.output import DIFFERENCES, USAGE, fail, print_json, print_table, say
from isthmus.stores import run_connectors
from isthmus.topologies import DEFAULT_FILE

if TYPE_CHECKING:
    from replicator.drift import Drift
    from replicator.settings import LinkSettings

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Links: what they have copied, whether they can, and what they shall do.",
)
app.command()(status)
app.command()(check)
app.command()(acknowledge_gap)
app.command()(pause)
app.command()(resume)
app.command()(restart)
app.command()(grant_writers)
app.command()(revoke_writers)
app.command("set")(set_settings)


@app.command()
def drift(link: LinkName, file: File = DEFAULT_FILE, as_json: Json = False) -> None:
    """Show how topics differ between source and target: which setting, whose it is, what the link would do.

    Changes nothing; the link may run or not. Ends with 3 when something is left for the link to do (a running
    link does it within its sync_topic_configs_interval_s) or cannot be done; what is the target's own is 0.

    Example: isthmus links drift 'east->west'
    """
    settings, asked = link_of(link, file, mirrors=None)
    rows = run_connectors(lambda: _drift(settings), asked)
    if as_json:
        print_json({"link": link, "drift": [row.to_json() for row in rows]})
    else:
        columns = ("at_target", "key", "source", "target", "owner", "action", "why")
        print_table(columns, [[row.to_json()[column] for column in columns] for row in rows])
    if any(row.open for row in rows):
        raise typer.Exit(DIFFERENCES)


async def _drift(settings: LinkSettings) -> list[Drift]:
    from replicator import drift

    async with (
        settings.source.at_once() as source,
        settings.target.at_once() as target,
    ):
        return await drift.drift(source, target, settings)


@app.command()
def acls(link: LinkName, file: File = DEFAULT_FILE, as_json: Json = False) -> None:
    """Show what the link has granted at the target, would grant or revoke, and which rights are withheld.

    Changes nothing; the link may run or not. Ends with 3 when something is left to grant or to revoke: a
    running link does it within its sync_topic_acls_interval_s, one with acls_report_only never.

    Example: isthmus links acls 'east->west'
    """
    settings, asked = link_of(link, file)
    report = run_connectors(lambda: _acls(settings), asked)
    if as_json:
        print_json({"link": link, **report})
    else:
        say(f"granted by the link: {report['granted_by_link']}, by others: {report['granted_by_others']}")
        for what in ("to_grant", "to_revoke", "write_withheld"):
            for text in report[what]:
                say(f"{what.replace('_', ' ')}: {text}")
        if report["not_revoked_because"]:
            say(f"not revoked: {report['not_revoked_because']}")
        if report["reason"]:
            say(f"not synced: {report['reason']}")
    if report["to_grant"] or report["to_revoke"]:
        raise typer.Exit(DIFFERENCES)


async def _acls(settings: LinkSettings) -> dict[str, Any]:
    from replicator.acl_report import acl_report

    async with (
        settings.source.at_once() as source,
        settings.target.at_once() as target,
    ):
        return await acl_report(source, target, settings)


@app.command()
def translate(
    link: LinkName,
    group: Annotated[str | None, typer.Option(help="all committed offsets of this group")] = None,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="with --partition and --offset")] = None,
    partition: Annotated[int, typer.Option("--partition", "-p")] = 0,
    offset: Annotated[
        int | None, typer.Option("--offset", "-o", help="of the source, or with --back of the target")
    ] = None,
    back: Annotated[bool, typer.Option("--back", help="from the target to the source (failback)")] = False,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
) -> None:
    """Translate offsets exactly: a group's committed ones, or a single one. Nothing is changed.

    Not exact means: more was read than is copied, and the position is held back to what is there. Ends with 3
    when there is a position that has no translation (why_not says why).

    Examples:

      isthmus links translate 'east->west' --group flight-board

      isthmus links translate 'east->west' --topic orders --partition 3 --offset 41077

      isthmus links translate 'east->west' --back --topic east.orders --partition 3 --offset 40999
    """
    if (group is None) == (topic is None or offset is None):
        fail("say either --group G, or --topic T --partition P --offset O", USAGE)
    settings, asked = link_of(link, file)
    rows = run_connectors(lambda: _translate(settings, group, topic, partition, offset, back), asked)
    if not rows:
        side = settings.target if back else settings.source
        fail(f"group {group} has committed nothing at {side.alias}")
    if as_json:
        print_json({"link": link, "back": back, "positions": rows})
    else:
        columns = ("topic", "partition", "offset", "from", "exact", "why_not")
        print_table(columns, [[row[column] for column in columns] for row in rows])
    if any(row["offset"] is None for row in rows):
        raise typer.Exit(DIFFERENCES)


async def _translate(
    settings: LinkSettings,
    group: str | None,
    topic: str | None,
    partition: int,
    offset: int | None,
    back: bool,
) -> list[dict[str, Any]]:
    from protocol.types import TopicPartition
    from replicator.progress import read_ledgers
    from replicator.translate import Direction, translate_group

    async with settings.target.at_once() as client:
        ledgers = await read_ledgers(client, settings.name)
    if group is not None:
        side = settings.target if back else settings.source
        async with side.at_once() as client:
            committed = {tp: found.offset for tp, found in (await client.committed(group)).items()}
    else:
        committed = {TopicPartition(str(topic), partition): int(offset or 0)}
    direction = Direction.TO_SOURCE if back else Direction.TO_TARGET
    found = translate_group(committed, ledgers, direction)
    rows: list[dict[str, Any]] = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": position.offset,
            "from": position.committed,
            "exact": position.exact,
            "why_not": None,
        }
        for tp, position in sorted(found.positions.items())
    ]
    rows += [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": None,
            "from": committed[tp],
            "exact": False,
            "why_not": reason,
        }
        for tp, reason in sorted(found.skipped.items())
    ]
    return rows
