"""`isthmus mirrors …`: how mirrors with identical offsets stand, and changing who is written to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.commands.link_gaps import acknowledge_gap
from isthmus.links import File, Json, LinkName, link_of, target_only
from isthmus.output import DIFFERENCES, confirm, note, print_json, print_table, say
from isthmus.stores import run_connectors
from isthmus.topologies import DEFAULT_FILE

if TYPE_CHECKING:
    from protocol.client import ClusterClient
    from replicator.mirrors.assessing import Risk
    from replicator.mirrors.reversing import Parting
    from replicator.settings import ClusterEnd, LinkSettings

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Mirrors with identical offsets: who is written to."
)

_ANSWER_S = 5.0
_RISK_COLUMNS = (
    "topic", "partition", "mirror_end", "source_end", "records", "seconds", "open_transactions", "counted",
)  # fmt: skip
_CUT_COLUMNS = ("topic", "partition", "common_end", "old_end", "new_end", "records", "seconds")

Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="these only; all of the link by default")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="say what would happen, and change nothing")]
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

    With the source at hand the records are counted; without it they are what the link knew last.

    Example: isthmus mirrors status 'east->west'
    """
    settings, asked = link_of(link, file, mirrors=True)
    found = run_connectors(lambda: _risks(settings, _names(topic)), target_only(asked))
    _show_risks(link, found, as_json=as_json)


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
    Nothing is changed where that does not come to an end in time.

    Example: isthmus mirrors promote 'east->west' --topic orders --dry-run
    """
    settings, asked = link_of(link, file, mirrors=True)
    names = _names(topic)
    before = run_connectors(lambda: _risks(settings, names, live=True), asked)
    if dry_run:
        _show_risks(link, before, as_json=as_json)
        return
    confirm(_plan(f"promote to {settings.target.alias}", before), yes=yes)

    async def work() -> dict[str, Any]:
        from replicator.mirrors.assessing import find_mirrors
        from replicator.mirrors.switching import promote as switch

        async with _both(settings) as (source, target):
            mirrors = await find_mirrors(target, settings, names)
            done = await switch(
                source,
                target,
                settings,
                mirrors,
                _once(),
                timeout_s=timeout,
                fence=fence,
                abort_open=abort_open,
            )
            return done.to_json()

    _done(link, "promoted", run_connectors(work, asked), as_json=as_json)


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
    Ends with 3 when records are lost, or when nobody can tell.

    Example: isthmus mirrors failover 'east->west' --dry-run
    """
    settings, asked = link_of(link, file, mirrors=True)
    names = _names(topic)
    before = run_connectors(lambda: _risks(settings, names), target_only(asked))
    if dry_run:
        _show_risks(link, before, as_json=as_json)
        return
    confirm(_plan(f"fail over to {settings.target.alias} now", before), yes=yes)

    async def work() -> dict[str, Any]:
        from replicator.mirrors.assessing import find_mirrors
        from replicator.mirrors.switching import failover as switch

        async with AsyncExitStack() as stack:
            target = await stack.enter_async_context(settings.target.client("isthmus-cli"))
            source = await _if_it_answers(settings.source, stack)
            mirrors = await find_mirrors(target, settings, names)
            return (await switch(source, target, settings, mirrors, _once())).to_json()

    found = run_connectors(work, target_only(asked))
    _done(link, "failed over", found, as_json=as_json)
    if found["records_lost"] or not found["lost_is_known"]:
        raise typer.Exit(DIFFERENCES)


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
    before = run_connectors(lambda: _partings(settings, back, names), asked)
    if dry_run:
        _show_cuts(link, before, as_json=as_json)
        return
    confirm(_cut_plan(settings, before, save_to), yes=yes)

    async def work() -> list[Parting]:
        from replicator.mirrors.reversing import reverse as turn
        from replicator.mirrors.reversing import reversible

        async with _both(settings) as (old, new):
            found = await reversible(old, new, settings, back.name, names)
            return await turn(old, new, found, back.name, save_to, _once())

    done = run_connectors(work, asked)
    _show_cuts(link, done, as_json=as_json)
    note(f"copying goes on with: isthmus replicate {file} --link '{back.name}'")
    if any(each.records for each in done):
        raise typer.Exit(DIFFERENCES)


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
    before = run_connectors(lambda: _partings(settings, back, names, begun=True), asked)
    if dry_run:
        _show_cuts(link, before, as_json=as_json)
        return
    confirm(_cut_plan(settings, before, save_to), yes=yes)

    async def work() -> dict[str, Any]:
        from replicator.mirrors.restoring import truncate_and_restore as restore

        async with _both(settings) as (old, new):
            done = await restore(
                old, new, settings, back, names, save_to, _once(), timeout_s=timeout, abort_open=abort_open
            )
            return done.to_json()

    found = run_connectors(work, asked)
    if as_json:
        print_json({"link": link, **found})
    else:
        print_table(_CUT_COLUMNS, [[row[column] for column in _CUT_COLUMNS] for row in found["cut"]])
        say(f"{settings.source.alias} is written to again: {', '.join(found['restored']['topics'])}")
    note(f"copying goes on with: isthmus replicate {file} --link '{link}'")
    if any(row["records"] for row in found["cut"]):
        raise typer.Exit(DIFFERENCES)


# -- asking


def _names(topics: list[str] | None) -> tuple[str, ...]:
    return tuple(topics or ())


def _back(settings: LinkSettings, file: Path) -> LinkSettings:
    return link_of(f"{settings.target.alias}->{settings.source.alias}", file, mirrors=True)[0]


async def _risks(settings: LinkSettings, topics: tuple[str, ...], *, live: bool = False) -> list[Risk]:
    """`live`: the source has to answer."""
    from replicator.mirrors.assessing import find_mirrors, risks

    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(settings.target.client("isthmus-cli"))
        if live:
            source: ClusterClient | None = await stack.enter_async_context(
                settings.source.client("isthmus-cli")
            )
        else:
            source = await _if_it_answers(settings.source, stack)
        mirrors = await find_mirrors(target, settings, topics)
        return await risks(source, target, settings, mirrors, whole=live)


async def _partings(
    settings: LinkSettings, back: LinkSettings, topics: tuple[str, ...], *, begun: bool = False
) -> list[Parting]:
    """`begun`: of topics too whose way back was interrupted; those that are back already have none."""
    from replicator.mirrors.reversing import partings, reversible

    async with _both(settings) as (old, new):
        home: set[str] | None = set() if begun else None
        return await partings(old, new, await reversible(old, new, settings, back.name, topics, home=home))


@asynccontextmanager
async def _both(settings: LinkSettings) -> AsyncIterator[tuple[ClusterClient, ClusterClient]]:
    async with (
        settings.source.client("isthmus-cli") as source,
        settings.target.client("isthmus-cli") as target,
    ):
        yield source, target


async def _if_it_answers(end: ClusterEnd, stack: AsyncExitStack) -> ClusterClient | None:
    from protocol.errors import ProtocolError

    client = end.client("isthmus-cli", timeout_s=_ANSWER_S, connect_timeout_s=_ANSWER_S)
    try:
        async with asyncio.timeout(_ANSWER_S):
            opened = await client.__aenter__()
    except (ProtocolError, TimeoutError):
        note(f"{end.alias} does not answer: what the link knew of it last counts")
        with contextlib.suppress(ProtocolError):
            await client.close()
        return None
    stack.push_async_exit(opened)
    return opened


# -- showing


def _show_risks(link: str, found: list[Risk], *, as_json: bool) -> None:
    rows = [risk.to_json() for risk in found]
    if as_json:
        topics: dict[str, dict[str, Any]] = {}
        for row in rows:
            each = topics.setdefault(row["topic"], {"records": 0, "seconds": 0.0})
            each["records"] = _sum(each["records"], row["records"])
            each["seconds"] = _most(each["seconds"], row["seconds"])
        print_json({"link": link, "at_risk": topics, "partitions": rows})
        return
    print_table(_RISK_COLUMNS, [[row[column] for column in _RISK_COLUMNS] for row in rows])


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _most(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


def _plan(what: str, found: list[Risk]) -> str:
    lines = [f"{what}:"]
    for name in sorted({risk.topic for risk in found}):
        of = [risk for risk in found if risk.topic == name]
        records = None if any(risk.records is None for risk in of) else sum(risk.records or 0 for risk in of)
        seconds = (
            None if any(risk.seconds is None for risk in of) else max(risk.seconds or 0.0 for risk in of)
        )
        at_risk = "not known" if records is None else f"{records} records"
        time = "" if seconds is None else f", {seconds:g} s"
        opened = sum(risk.open_transactions for risk in of)
        aborted = f"; {opened} open transactions" if opened else ""
        lines.append(f"  {name}: {len(of)} partitions; not at the mirror: {at_risk}{time}{aborted}")
    return "\n".join(lines)


def _show_cuts(link: str, found: list[Parting], *, as_json: bool) -> None:
    rows = [parting.to_json() for parting in found]
    if as_json:
        print_json({"link": link, "partitions": rows, "records_cut": sum(row["records"] for row in rows)})
        return
    print_table(_CUT_COLUMNS, [[row[column] for column in _CUT_COLUMNS] for row in rows])


def _cut_plan(settings: LinkSettings, found: list[Parting], folder: Path) -> str:
    lines = [f"{settings.source.alias} becomes a mirror of {settings.target.alias}:"]
    for name in sorted({each.topic for each in found}):
        cut = sum(each.records for each in found if each.topic == name)
        lines.append(
            f"  {name}: {cut} records that only {settings.source.alias} has are saved to {folder}, and cut"
        )
    return "\n".join(lines)


def _done(link: str, what: str, found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({"link": link, **found})
        return
    lost = f"{found['records_lost']} records" if found["lost_is_known"] else "an unknown number of records"
    say(f"{what}: {', '.join(found['topics'])}")
    say(f"lost: {lost}; transactions aborted: {found['aborted_transactions']}")
    for group, reason in sorted(found["groups"].items()):
        if reason:
            say(f"group {group}: {reason}")


def _once() -> Callable[[str], None]:
    """Says a thing when it is new: some are looked at ten times a second."""
    said: list[str] = []

    def tell(text: str) -> None:
        if said[-1:] != [text]:
            said.append(text)
            note(text)

    return tell
