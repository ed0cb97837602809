"""`isthmus links hand-back`: MirrorMaker 2 goes on where a link stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.links import File, Json, LinkName, link_of
from isthmus.output import DIFFERENCES, print_json, print_table, say
from isthmus.stores import run_connectors
from isthmus.topologies import DEFAULT_FILE

if TYPE_CHECKING:
    from replicator.mirrormaker.handing_back import HandedBack
    from replicator.settings import LinkSettings

DryRun = Annotated[bool, typer.Option("--dry-run", help="only show what would change")]


def hand_back(
    link: LinkName, dry_run: DryRun = False, file: File = DEFAULT_FILE, as_json: Json = False
) -> None:
    """Have MirrorMaker 2 go on where the link stopped: nothing is copied twice, nothing is left out.

    Stop all workers of the link first, start MirrorMaker 2 afterwards. Writes into the topic where Kafka
    Connect keeps MirrorMaker 2's progress, which the link's file names (mm2-offsets.SOURCE.internal unless it
    says otherwise), and makes it if it is not there; what stood there is shown, and is replaced. A link that
    is started again later waits until MirrorMaker 2 is stopped, and goes on behind what that has copied.

    Ends with 3 where a partition could not be handed back exactly (left says why).

    Examples:

    isthmus links hand-back 'east->west' -f connect-mirror-maker.properties --dry-run

    isthmus links hand-back 'east->west' -f connect-mirror-maker.properties
    """
    settings, asked = link_of(link, file)
    found = run_connectors(lambda: _hand_back(settings, dry_run=dry_run), asked)
    if as_json:
        print_json({"link": link, "dry_run": dry_run, **found.to_json()})
    else:
        _show(found, dry_run=dry_run)
    if any(row.left for row in found.rows):
        raise typer.Exit(DIFFERENCES)


async def _hand_back(settings: LinkSettings, *, dry_run: bool) -> HandedBack:
    from replicator.mirrormaker.handing_back import hand_back

    async with settings.source.at_once() as source, settings.target.at_once() as target:
        return await hand_back(source, target, settings, dry_run=dry_run)


def _show(found: HandedBack, *, dry_run: bool) -> None:
    """Positions are those of the next source offset that MirrorMaker 2 reads."""
    if found.made:
        say(f"{found.topic} {'would be' if dry_run else 'was'} made: MirrorMaker 2 has no progress there")
    changed = [row for row in found.rows if row.changes]
    if changed:
        columns = ("topic", "partition", "mirrormaker_at", "goes_on_at")
        print_table(columns, [[*row.tp, _at(row.before), _at(row.after)] for row in changed])
    for row in found.rows:
        for remark in row.remarks:
            say(f"{row.tp.topic}-{row.tp.partition}: {remark}")
        if row.left:
            say(f"left: {row.tp.topic}-{row.tp.partition}: {row.left}")
    left = sum(bool(row.left) for row in found.rows)
    same = sum(not row.changes and not row.left for row in found.rows)
    say(
        f"{found.topic}: {len(changed)} of {len(found.rows)} partitions {'would be' if dry_run else 'were'}"
        f" set, {same} stand right already, {left} left; {found.others} that the link has nothing of stay"
    )


def _at(position: int | None) -> int | str:
    return "its start" if position is None else position
