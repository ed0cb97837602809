"""`isthmus links …`: what a link has copied, and where offsets are on the other side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from isthmus.commands.link_check import check
from isthmus.commands.link_control import pause, restart, resume, set_settings
from isthmus.commands.link_fail_back import fail_groups_back
from isthmus.commands.link_gaps import acknowledge_gap
from isthmus.commands.link_hand_back import hand_back
from isthmus.commands.link_status import status
from isthmus.commands.link_translate import translate
from isthmus.commands.link_writers import grant_writers, revoke_writers
from isthmus.links import File, Json, LinkName, link_of
from isthmus.output import DIFFERENCES, print_json, print_table, say
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
app.command()(hand_back)
app.command()(fail_groups_back)
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


app.command()(translate)
