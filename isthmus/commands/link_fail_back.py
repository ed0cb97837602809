"""`isthmus links fail-groups-back`: groups go on at the source where they stand at the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.links import File, Json, LinkName, link_of, patterns
from isthmus.output import DIFFERENCES, FAILED, USAGE, fail, print_json, print_table, say
from isthmus.stores import run_connectors
from isthmus.topologies import DEFAULT_FILE
from protocol.counted import counted

if TYPE_CHECKING:
    from replicator.failing_back import FailedBack
    from replicator.settings import LinkSettings

DryRun = Annotated[bool, typer.Option("--dry-run", help="only show what would be set")]


def fail_groups_back(
    link: LinkName,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", help="patterns with commas, again for more; the link's by default"),
    ] = None,
    dry_run: DryRun = False,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
) -> None:
    """Set groups at the source behind what they have read at the target, exactly: for a failback.

    Stop the groups' consumers on both sides first, and let a link back, if there is one, come to its end.
    Of each partition is told where the group stood at the source (old) and is set to (new). Nothing is taken
    back, and nothing set while the group has members; the positions at the target stay.

    Groups without a position at the target have read nothing there: they are named, and stay where they are.

    Ends with 3 where one was not set, or is not exact (why_not and note say why).

    Examples:

      isthmus links fail-groups-back 'east->west' --group 'orders.*' --dry-run

      isthmus links fail-groups-back 'east->west' --group 'orders.*'
    """
    wanted = patterns(group, "--group")
    settings, asked = link_of(link, file)
    rows, refused, nothing_read = run_connectors(lambda: _fail_back(settings, wanted, dry_run=dry_run), asked)
    where = f"at {settings.target.alias} in topics of {link}"
    if not rows and not refused:
        if nothing_read:
            fail(f"nothing to set, without a position {where}: {', '.join(nothing_read)}")
        fail(
            f"no group that matches has committed anything {where}, and none is at {settings.source.alias}",
            USAGE if wanted else FAILED,
        )
    if as_json:
        found = [row.to_json() for row in rows]
        left = {"groups_left": refused, "groups_without_position": nothing_read}
        print_json({"link": link, "dry_run": dry_run, "positions": found, **left})
    else:
        _show(rows, refused, dry_run=dry_run)
        if nothing_read:
            say(
                f"nothing to set for {counted(len(nothing_read), 'group')}, without a position {where}:"
                f" {', '.join(nothing_read)}"
            )
    if refused or any(row.why_not or not row.exact for row in rows):
        raise typer.Exit(DIFFERENCES)


async def _fail_back(
    settings: LinkSettings, wanted: tuple[str, ...], *, dry_run: bool
) -> tuple[list[FailedBack], dict[str, str], list[str]]:
    from replicator.failing_back import FailBack
    from replicator.filters import NameFilter

    groups = NameFilter(wanted or settings.groups, () if wanted else settings.groups_exclude)
    async with settings.source.at_once() as source, settings.target.at_once() as target:
        failing = FailBack(source, target, settings)
        rows, refused = await failing.rows(groups)
        if not dry_run:
            await failing.write(rows)
        return rows, refused, failing.nothing_read


def _show(rows: list[FailedBack], refused: dict[str, str], *, dry_run: bool) -> None:
    columns = ("group", "topic", "partition", "at_target", "old", "new", "exact", "set")
    cells = [
        (row.group, row.topic, row.partition, row.committed, row.old, row.new, row.exact, row.changes)
        for row in rows
    ]
    print_table(columns, cells)
    for row in rows:
        where = f"{row.group} {row.topic}-{row.partition}"
        if row.why_not:
            say(f"not set: {where}: {row.why_not}")
        elif row.note:
            say(f"note: {where}: {row.note}")
    for name, why in refused.items():
        say(f"not set: {name}: {why}")
    changed, left = sum(row.changes for row in rows), sum(bool(row.why_not) for row in rows)
    done = "would be" if dry_run else "was" if changed == 1 else "were"
    say(
        f"{counted(changed, 'position')} {done} set,"
        f" {len(rows) - changed - left} stood right already, {left} not set"
        + (f"; {counted(len(refused), 'group')} left as a whole" if refused else "")
    )
