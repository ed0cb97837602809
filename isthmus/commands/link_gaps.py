"""`isthmus links acknowledge-gap`: somebody has taken note of what a link could not copy."""

from __future__ import annotations

import getpass
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.addresses import told
from isthmus.links import File, Json, LinkName, link_of, target_only
from isthmus.output import USAGE, fail, print_json, say
from isthmus.stores import run_connectors
from isthmus.topologies import DEFAULT_FILE

if TYPE_CHECKING:
    from collections.abc import Callable

    from replicator.acknowledgements import Acknowledgement, Difference
    from replicator.settings import LinkSettings


def acknowledge_gap(
    link: LinkName,
    why: Annotated[str, typer.Option("--why", help="what was decided, or a ticket", show_default=False)],
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="of this source topic only")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="with --topic")] = None,
    everything: Annotated[bool, typer.Option("--all", help="all that are open now")] = False,
    by: Annotated[str | None, typer.Option("--by", help="who; user@host by default")] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", help="of an ad-hoc copy: its target (host:port,… or a cluster of the file)"),
    ] = None,
    to_config: Annotated[
        Path | None, typer.Option(help="client.properties with security settings for --to")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only show them")] = False,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
) -> None:
    """Note that somebody knows of gaps (and superseded copies): who, when and why.

    They stay on record and are shown as acknowledged; the link and its status end with 0 again, until there
    is another one. A partition that stopped at its gap (on_gap: stop) goes on. Only what is open now is
    acknowledged, whether the link runs or not.

    Of links with identical offsets too (the same command is isthmus mirrors acknowledge-gap). A mirror begins
    where its source does: when it goes on behind a gap it drops what it has before, of which the source has
    nothing any more. With on_gap: stop it keeps that, readable, until its gap is acknowledged; how many
    records it drops then is said, also with --dry-run.

    Of an ad-hoc copy, which no file declares, say --to and the name that isthmus copy shows with its gaps.

    Examples:

    isthmus links acknowledge-gap 'east->west' --topic orders --why 'INC-42: restored from backup'

    isthmus links acknowledge-gap 'copy-x->y' --to new:9092 --all --why 'INC-43: not needed'
    """
    if everything == (topic is not None) or (partition is not None and topic is None):
        fail("say either --all, or --topic T (and --partition P)", USAGE)
    if not why.strip():
        fail("--why says nothing: the next reader will want to know", USAGE)
    settings, asked = (
        _of_copy(link, to, to_config, file) if to or to_config else link_of(link, file, mirrors=None)
    )
    who = by or f"{getpass.getuser()}@{socket.gethostname()}"

    def chosen(found: Difference) -> bool:
        return topic in (None, found.tp.topic) and partition in (None, found.tp.partition)

    from replicator.acknowledgements import Acknowledgement

    noted_now = Acknowledgement(who, why.strip(), time.time_ns() // 1_000_000)
    rows, drops = run_connectors(
        lambda: _acknowledge(settings, chosen, noted_now, dry_run=dry_run),
        target_only(asked),
    )
    if as_json:
        print_json(
            {
                "link": link,
                "by": who,
                "dry_run": dry_run,
                "acknowledged": [
                    difference_json(row) | ({"drops": drops[row]} if row in drops else {}) for row in rows
                ],
            }
        )
        return
    for row in rows:
        say(f"{'would acknowledge' if dry_run else 'acknowledged'}: {row}")
        if row in drops:
            say(
                f"with that the mirror goes on behind it, and drops the {drops[row]} records that it has"
                " before it: the source has none of them any more"
            )
    if not rows:
        say("nothing to acknowledge")


def _of_copy(link: str, to: str | None, config: Path | None, file: Path) -> tuple[LinkSettings, None]:
    """Settings of a copy as far as its target goes: its source need not be there any more."""
    from pydantic import ValidationError

    from replicator.settings import ClusterEnd, LinkSettings

    where, properties = told(to, config, "--to", file)
    source, arrow, target = link.partition("->")
    try:
        if not arrow:
            raise ValueError
        here = ClusterEnd(alias=source, bootstrap="of-a-copy:0")
        there = ClusterEnd(alias=target, bootstrap=where, properties=properties)
        return LinkSettings(source=here, target=there, shared=False), None
    except (ValidationError, ValueError):
        fail(f"'{link}' is no name of a copy: those look like copy-NAME->CLUSTER", USAGE)


async def _acknowledge(
    settings: LinkSettings,
    chosen: Callable[[Difference], bool],
    acknowledgement: Acknowledgement,
    *,
    dry_run: bool,
) -> tuple[list[Difference], dict[Difference, int]]:
    """What is chosen, and how many records a mirror drops for it."""
    from replicator.acknowledgements import open_differences
    from replicator.mirrors.dropping import would_drop
    from replicator.mirrors.on_record import open_ever
    from replicator.progress import ProgressStore

    async with settings.target.at_once() as client:
        store = ProgressStore(client, settings.progress_topic)
        progress = await store.refresh()
        if not settings.shared and not progress.partitions():
            fail(f"there is no progress of a copy {settings.name} at {settings.target.bootstrap}", USAGE)
        if not dry_run:
            await store.load()
        if settings.offsets == "identical":
            missing = await open_ever(client, settings)
        else:
            ledgers = {tp: entry.ledger for tp, entry in progress.entries().items()}
            missing = open_differences(ledgers, store.acknowledged)
        rows = [found for found in missing if chosen(found)]
        drops = await would_drop(client, settings, rows) if settings.offsets == "identical" else {}
        if not dry_run:
            await store.save_acknowledged(dict.fromkeys(rows, acknowledgement))
    return rows, drops


def noted(row: dict[str, Any], kind: str, start: int, end: int) -> str:
    """What a row of the link's report says about who knows of a difference."""
    for known in row["acknowledged"]:
        if (known["kind"], known["start"], known["end"]) == (kind, start, end):
            when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(known["at_ms"] / 1000))
            return f" (acknowledged by {known['by']}, {when}: {known['why']})"
    return ""


def difference_json(found: Difference) -> dict[str, Any]:
    """For machines."""
    return {
        "topic": found.tp.topic,
        "partition": found.tp.partition,
        "kind": found.kind,
        "start": found.start,
        "end": found.end,
        "reason": found.reason,
    }
