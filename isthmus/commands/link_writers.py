"""`isthmus links grant-writers`, `revoke-writers`: who may write at the mirrors after a fail-over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.links import File, Json, LinkName, link_of, target_only
from isthmus.output import DIFFERENCES, note, print_json, say
from isthmus.stores import run_connectors
from isthmus.topologies import DEFAULT_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from replicator.settings import LinkSettings
    from replicator.writers import WritersResult

_DONE = {"grant": "granted", "revoke": "revoked"}

DryRun = Annotated[bool, typer.Option("--dry-run", help="only show them")]


def grant_writers(
    link: LinkName, dry_run: DryRun = False, file: File = DEFAULT_FILE, as_json: Json = False
) -> None:
    """Grant at the link's mirrors what the source's writers have there: after a fail-over, to write on.

    While a link runs it withholds WRITE (and ALL) from its mirrors and notes what; the source need not be
    there any more. Stop the link first: what applications write into a mirror that a link still fills stands
    between the copies. Only topics are covered: producers with transactions need their transactional ids too.
    Ends with 3 when the target refuses one.

    Example: isthmus links grant-writers 'east->west' --dry-run
    """
    from replicator.writers import grant_writers as grant

    _run(link, file, as_json, dry_run, "grant", lambda *of: grant(*of, dry_run=dry_run))


def revoke_writers(
    link: LinkName, dry_run: DryRun = False, file: File = DEFAULT_FILE, as_json: Json = False
) -> None:
    """Take back what grant-writers has granted, and nothing else: before the link copies again (fail-back).

    Ends with 3 when the target refuses one; asked again, it goes on with what is left.

    Example: isthmus links revoke-writers 'east->west'
    """
    from replicator.writers import revoke_writers as revoke

    _run(link, file, as_json, dry_run, "revoke", lambda *of: revoke(*of, dry_run=dry_run))


def _run(
    link: str,
    file: Path,
    as_json: bool,
    dry_run: bool,
    verb: str,
    call: Callable[..., Awaitable[WritersResult]],
) -> None:
    settings, asked = link_of(link, file)
    result = run_connectors(lambda: _asked(settings, call), target_only(asked))
    if as_json:
        print_json({"link": link, "dry_run": dry_run, "asked_to": verb, **result.to_json()})
    else:
        for acl in result.done:
            say(f"{'would ' + verb if dry_run else _DONE[verb]}: {acl}")
        for acl in result.left:
            say(f"left alone: {acl} ({'it is there already' if verb == 'grant' else 'it is gone already'})")
        for acl, why in result.refused.items():
            say(f"refused: {acl}: {why}")
        if verb == "grant" and not result.known:
            note(
                f"nothing is noted as withheld by {link}: the source has no ACLs that let anybody write, or"
                " the link has not synced ACLs since this version runs it (isthmus links acls shows them)"
            )
    if result.refused:
        raise typer.Exit(DIFFERENCES)


async def _asked(settings: LinkSettings, call: Callable[..., Awaitable[WritersResult]]) -> WritersResult:
    from replicator.progress import ProgressStore

    async with settings.target.at_once() as client:
        return await call(client, ProgressStore(client, settings.progress_topic))
