"""`isthmus links check`: what would go wrong with a link, before it starts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.link_files import open_link_file
from isthmus.links import File, Json
from isthmus.output import DIFFERENCES, FAILED, note, print_json, say
from isthmus.topologies import DEFAULT_FILE
from protocol.counted import counted

if TYPE_CHECKING:
    from replicator.preflight import Finding
    from replicator.settings import LinkSettings

_CONNECT_S = 5.0
_LONGEST_S = 120.0


def check(
    link: Annotated[
        str | None, typer.Argument(metavar="[LINK]", help="source->target; all of the file by default")
    ] = None,
    file: File = DEFAULT_FILE,
    strict: Annotated[bool, typer.Option("--strict", help="warnings count as errors")] = False,
    as_json: Json = False,
) -> None:
    """Look for what would go wrong: connections, rights, names, cycles, sizes, times, replicas, room.

    Also transactions that nobody will end (KIP-664), at which readers of committed records wait for ever.
    Changes nothing. Each finding says what to do. Ends with 0 when there is no error, 3 when there is one,
    1 when a cluster cannot be reached.

    Example: isthmus links check 'east->west' --topology examples/two-datacenters.yaml
    """
    all_links = open_link_file(file, None, []).links
    wanted = open_link_file(file, None, [link] if link is not None else []).links
    found: dict[str, list[Finding]] = {}
    reached = True
    for name, settings in wanted.items():
        if not as_json:
            note(f"{name}: asking both clusters")
        found[name], answered = asyncio.run(_check(settings, list(all_links.values())))
        reached = reached and answered
    errors = _show(found, strict, as_json)
    if not reached:
        raise typer.Exit(FAILED)
    if errors:
        raise typer.Exit(DIFFERENCES)


def _show(found: dict[str, list[Finding]], strict: bool, as_json: bool) -> bool:
    """Whether one of them is an error."""
    from replicator.preflight import Level

    bad = {Level.ERROR, Level.WARNING} if strict else {Level.ERROR}
    rows: list[dict[str, Any]] = []
    for name, findings in found.items():
        rows.append({"link": name, "findings": [finding.to_json() for finding in findings]})
        if as_json:
            continue
        for finding in findings:
            say(f"{name}: {finding}")
        count = sum(finding.level in bad for finding in findings)
        say(
            f"{name}: {counted(len(findings), 'finding')}, {counted(count, 'error')} among them"
            if findings
            else f"{name}: ready"
        )
    if as_json:
        print_json(rows)
    return any(finding.level in bad for findings in found.values() for finding in findings)


async def _check(settings: LinkSettings, links: list[LinkSettings]) -> tuple[list[Finding], bool]:
    """Findings, and whether both clusters answered."""
    from contextlib import AsyncExitStack

    from protocol.client import NO_RETRIES
    from protocol.client.doors import advice
    from protocol.errors import ProtocolError
    from replicator.preflight import Finding, Level, check_link

    silent: list[Finding] = []
    clients = []
    async with AsyncExitStack() as stack:
        for end in (settings.source, settings.target):
            try:
                client = end.client("isthmus-cli", connect_timeout_s=_CONNECT_S, retry=NO_RETRIES)
                clients.append(await stack.enter_async_context(client))
            except (ProtocolError, ValueError) as error:
                what = error.what if isinstance(error, ProtocolError) else str(error)
                protocol = end.properties.get("security.protocol", "PLAINTEXT")
                to_do = getattr(error, "to_do", "") or advice(what, protocol)
                silent.append(Finding(Level.ERROR, "connectivity", end.alias, what, to_do))
        if silent:
            return silent, False
        try:
            async with asyncio.timeout(_LONGEST_S):
                return await check_link(clients[0], clients[1], settings, links), True
        except (ProtocolError, TimeoutError) as error:
            what = f"the check broke off: {error or 'no answer in time'}"
            return [Finding(Level.ERROR, "connectivity", settings.name, what, "try again")], False
