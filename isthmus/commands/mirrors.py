"""`isthmus mirrors …`: how mirrors with identical offsets stand, and changing who is written to."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.commands.link_gaps import acknowledge_gap
from isthmus.commands.mirror_asking import ask_partings, ask_risks, both, if_it_answers
from isthmus.commands.mirror_tables import (
    CUT_COLUMNS,
    cut_plan,
    plan,
    say_once,
    show_cuts,
    show_done,
    show_risks,
)
from isthmus.links import File, Json, LinkName, link_of, source_only, target_only
from isthmus.output import DIFFERENCES, confirm, note, print_json, print_table, say
from isthmus.stores import run_connectors
from isthmus.topologies import DEFAULT_FILE

if TYPE_CHECKING:
    from replicator.mirrors.reversing import Parting
    from replicator.settings import LinkSettings

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Mirrors with identical offsets: who is written to."
)

Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="these only; all of the link by default")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="say what would happen, and end as that would; change nothing")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do it without asking")]
Timeout = Annotated[float, typer.Option("--timeout", help="seconds for what is left to copy", min=1)]
SaveTo = Annotated[
    Path, typer.Option("--save-to", help="folder for records that only the old side has", show_default=True)
]
AbortOpen = Annotated[
    bool, typer.Option("--abort-open", help="abort transactions that are open, and do not wait for their end")
]
_SAVED = Path("saved-by-mirrors")

app.command()(acknowledge_gap)


@app.command()
def status(link: LinkName, topic: Topics = None, file: File = DEFAULT_FILE, as_json: Json = False) -> None:
    """Show how far each mirror is, and what a failover would lose now.

    With the source at hand the records are counted; without it they are what the link knew last. Ends with 3
    when there are gaps (or stretches that were cut off) that nobody has acknowledged.

    Example: isthmus mirrors status 'east->west'
    """
    settings, asked = link_of(link, file, mirrors=True)
    found = run_connectors(lambda: ask_risks(settings, _names(topic)), target_only(asked))
    show_risks(link, found, as_json=as_json)
    if found.differences is None or found.differences:
        raise typer.Exit(DIFFERENCES)


@app.command()
def promote(
    link: LinkName,
    topic: Topics = None,
    timeout: Timeout = 60.0,
    fence: Annotated[
        bool, typer.Option("--fence/--no-fence", help="make an isthmus source refuse writers first")
    ] = True,
    abort_open: AbortOpen = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
) -> None:
    """Make mirrors writable with everything that the source has, or not at all.

    The source refuses writers first (an Apache Kafka source cannot: stop them, it is looked whether they have
    stopped). What is left is copied, groups too; then the topics are writable. The link may run or not.
    Nothing is changed where that does not come to an end in time, or where a topic of the link has no mirror
    yet and none are named.

    Example: isthmus mirrors promote 'east->west' --topic orders --dry-run
    """
    settings, asked = link_of(link, file, mirrors=True)
    names = _names(topic)
    before = run_connectors(lambda: ask_risks(settings, names, live=True), asked)
    if dry_run:
        show_risks(link, before, as_json=as_json)
        return
    confirm(plan(f"promote to {settings.target.alias}", before), yes=yes)

    async def work() -> dict[str, Any]:
        from replicator.mirrors.assessing import find_mirrors
        from replicator.mirrors.left_behind import refuse_to_leave_behind
        from replicator.mirrors.switching import promote as switch

        async with both(settings) as (source, target):
            mirrors = await find_mirrors(target, settings, names)
            if not names:
                await refuse_to_leave_behind(source, target, settings)
            done = await switch(
                source,
                target,
                settings,
                mirrors,
                say_once(),
                timeout_s=timeout,
                fence=fence,
                abort_open=abort_open,
            )
            return done.to_json()

    show_done(link, "promoted", run_connectors(work, asked), before, as_json=as_json)


@app.command()
def failover(
    link: LinkName,
    topic: Topics = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
) -> None:
    """Make mirrors writable now, with what they have; says how much is lost.

    For a source that is gone, or half gone: partitions that answer within seconds are counted, the others are
    as the link knew them last (column counted). Open transactions are aborted.
    Ends with 3 when records are lost, when nobody can tell, or when a topic of the link had no mirror yet.

    Example: isthmus mirrors failover 'east->west' --dry-run
    """
    settings, asked = link_of(link, file, mirrors=True)
    names = _names(topic)
    before = run_connectors(lambda: ask_risks(settings, names), target_only(asked))
    if dry_run:
        show_risks(link, before, as_json=as_json)
        if before.left_behind.missing or any(risk.records or not risk.is_exact for risk in before.risks):
            raise typer.Exit(DIFFERENCES)
        return
    confirm(plan(f"fail over to {settings.target.alias} now", before), yes=yes)

    async def work() -> dict[str, Any]:
        from replicator.mirrors.assessing import find_mirrors
        from replicator.mirrors.switching import failover as switch

        async with AsyncExitStack() as stack:
            target = await stack.enter_async_context(settings.target.at_once())
            source = await if_it_answers(settings.source, stack)
            mirrors = await find_mirrors(target, settings, names)
            return (await switch(source, target, settings, mirrors, say_once())).to_json()

    found = run_connectors(work, target_only(asked))
    show_done(link, "failed over", found, before, as_json=as_json)
    if found["records_lost"] or not found["lost_is_known"] or before.left_behind.missing:
        raise typer.Exit(DIFFERENCES)


@app.command()
def unfence(
    link: LinkName,
    topic: Topics = None,
    force: Annotated[
        bool, typer.Option("--force", help="also where the target does not answer: it may be written to")
    ] = False,
    yes: Yes = False,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
) -> None:
    """Give up a promotion that was broken off: the source takes writes again, the mirrors stay mirrors.

    Refused where the target may be written to already. Promote goes on with what was broken off instead.

    Example: isthmus mirrors unfence 'east->west'
    """
    settings, asked = link_of(link, file, mirrors=True)
    names = _names(topic)

    async def work(*, does: bool) -> dict[str, str]:
        from replicator.mirrors.assessing import SwitchRefused
        from replicator.mirrors.giving_up import fenced_topics, give_up

        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(settings.source.client("isthmus-cli"))
            fenced = await fenced_topics(source, settings, names)
            if not fenced:
                raise SwitchRefused(f"nothing in {settings.source.alias} is fenced for {link}")
            if does:
                if force:
                    target = await if_it_answers(settings.target, stack)
                else:
                    target = await stack.enter_async_context(settings.target.client("isthmus-cli"))
                await give_up(source, target, settings, fenced, say_once())
            return fenced

    found = run_connectors(lambda: work(does=False), source_only(asked))
    confirm(f"{settings.source.alias} takes writes again: {', '.join(sorted(found))}", yes=yes)
    run_connectors(lambda: work(does=True), source_only(asked) if force else asked)
    if as_json:
        print_json({"link": link, "topics": sorted(found)})


@app.command()
def reverse(
    link: LinkName,
    topic: Topics = None,
    save_to: SaveTo = _SAVED,
    dry_run: DryRun = False,
    yes: Yes = False,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
) -> None:
    """Make the link's old source the mirror of what was promoted, or failed over to.

    The old source is cut back to where both sides parted; records that only it has are saved to files first.
    Then the link back, which the file has to declare with offsets: identical, copies what is new. Ends with 3
    when records were cut off.

    Example: isthmus mirrors reverse 'east->west' --save-to /var/lib/isthmus/saved
    """
    settings, asked = link_of(link, file, mirrors=True)
    back = _back(settings, file)
    names = _names(topic)
    before = run_connectors(lambda: ask_partings(settings, back, names), asked)
    if dry_run:
        show_cuts(link, before, as_json=as_json)
        _end_if_cut(before)
        return
    confirm(cut_plan(settings, before, save_to), yes=yes)

    async def work() -> list[Parting]:
        from replicator.mirrors.left_behind import left_behind
        from replicator.mirrors.reversing import reverse as turn
        from replicator.mirrors.reversing import reversible

        async with both(settings) as (old, new):
            for name in () if names else (await left_behind(old, new, settings)).missing:
                note(f"{name} is in {settings.source.alias} alone and stays writable there")
            found = await reversible(old, new, settings, back.name, names)
            return await turn(old, new, found, back.name, save_to, say_once())

    done = run_connectors(work, asked)
    show_cuts(link, done, as_json=as_json)
    note(f"copying goes on with: isthmus replicate {file} --link '{back.name}'")
    _end_if_cut(done)


@app.command("truncate-and-restore")
def truncate_and_restore(
    link: LinkName,
    topic: Topics = None,
    save_to: SaveTo = _SAVED,
    timeout: Timeout = 300.0,
    abort_open: AbortOpen = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
) -> None:
    """Give an old source that has come back its role again, and the mirror its own.

    Cuts the old source back to where both sides parted (records that only it has are saved to files first),
    copies what was written meanwhile, makes it writable and the other side its mirror again. Ends with 3 when
    records were cut off.

    Example: isthmus mirrors truncate-and-restore 'east->west' --dry-run
    """
    settings, asked = link_of(link, file, mirrors=True)
    back = _back(settings, file)
    names = _names(topic)
    before = run_connectors(lambda: ask_partings(settings, back, names, begun=True), asked)
    if dry_run:
        show_cuts(link, before, as_json=as_json)
        _end_if_cut(before)
        return
    confirm(cut_plan(settings, before, save_to), yes=yes)

    async def work() -> dict[str, Any]:
        from replicator.mirrors.restoring import truncate_and_restore as restore

        async with both(settings) as (old, new):
            done = await restore(
                old, new, settings, back, names, save_to, say_once(), timeout_s=timeout, abort_open=abort_open
            )
            return done.to_json()

    found = run_connectors(work, asked)
    if as_json:
        print_json({"link": link, **found})
    else:
        print_table(CUT_COLUMNS, [[row[column] for column in CUT_COLUMNS] for row in found["cut"]])
        say(f"{settings.source.alias} is written to again: {', '.join(found['restored']['topics'])}")
        for group, reason in sorted(found["restored"]["groups"].items()):
            if reason:
                say(f"group {group}: {reason}")
    note(f"copying goes on with: isthmus replicate {file} --link '{link}'")
    if any(row["records"] for row in found["cut"]):
        raise typer.Exit(DIFFERENCES)


def _end_if_cut(found: list[Parting]) -> None:
    if any(each.records for each in found):
        raise typer.Exit(DIFFERENCES)


def _names(topics: list[str] | None) -> tuple[str, ...]:
    return tuple(topics or ())


def _back(settings: LinkSettings, file: Path) -> LinkSettings:
    return link_of(f"{settings.target.alias}->{settings.source.alias}", file, mirrors=True)[0]
