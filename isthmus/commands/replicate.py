"""`isthmus replicate FILE`: run the links of a topology or of an MM2 properties file until stopped."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.link_files import LinkFile, open_link_file
from isthmus.output import FAILED, USAGE, fail, note, print_json, print_table, say
from isthmus.topologies import DataDirectory

if TYPE_CHECKING:
    from replicator.plan import LinkPlan
    from replicator.settings import LinkSettings
    from replicator.worker import LinkStatus

_SAY_AFTER_S = 6.0
"""A little longer than a link itself takes to notice that a cluster is silent."""


def replicate(
    file: Annotated[Path, typer.Argument(help="topology YAML, or MM2 properties", show_default=False)],
    link: Annotated[
        list[str] | None, typer.Option("--link", help="source->target, several times; all links by default")
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option("--clusters", help="only links into these targets (A,B), as MirrorMaker 2 has it"),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="say what it would do, and change nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="with --check: for machines")] = False,
    metrics_port: Annotated[
        int | None, typer.Option(help="Prometheus port; 0 takes a free one", min=0, max=65535)
    ] = None,
    rest_port: Annotated[
        int | None, typer.Option(help="REST (status, pause, settings); 0 takes a free port", min=0, max=65535)
    ] = None,
    rest_host: Annotated[
        str, typer.Option(help="address for REST; others than this machine's need --rest-token-file")
    ] = "127.0.0.1",
    rest_token_file: Annotated[
        Path | None,
        typer.Option(help="REST asks for what this file holds as a bearer token (over plain HTTP)"),
    ] = None,
    data_directory: DataDirectory = None,
) -> None:
    """Copy topics, offsets and groups of links until SIGTERM or Ctrl-C.

    FILE is a topology, or connect-mirror-maker.properties as it is: settings without a meaning here are
    named, unknown ones are errors. A link whose MirrorMaker 2 was stopped goes on where that stopped.

    Start it several times, on any hosts, with the same file: the processes share the partitions of each link,
    and what one had goes on at the others within seconds when it ends or is lost.

    Progress is kept in the target cluster: stop and start it anywhere. Ends with 3 when something could not
    be copied (a gap), with 1 when a link failed (the others go on) or never reached both its clusters, with 2
    for a wrong file. A link is ready once both its clusters have answered; until then it goes on trying.

    Examples:

    isthmus replicate examples/two-datacenters.yaml --link 'east->west'

    isthmus replicate connect-mirror-maker.properties --check

    isthmus replicate connect-mirror-maker.properties --clusters west --metrics-port 9464

    isthmus replicate links.yaml --rest-port 8083    # then http://127.0.0.1:8083/ in a browser
    """
    import uvloop

    from replicator.dedicated import circles

    found = open_link_file(file, data_directory, link or ())
    links = _into(found, clusters)
    going_round = circles(list(found.links.values()))
    if check:
        raise typer.Exit(asyncio.run(_check(links, found, going_round, as_json=as_json)))
    for remark in found.remarks:
        note(f"{file}: {remark}")
    if going_round:
        fail("\nisthmus: ".join(going_round), USAGE)
    rest = _Rest(rest_port, rest_host, _token(rest_token_file, rest_port, rest_host))
    raise typer.Exit(uvloop.run(_run(links, metrics_port, rest)))


@dataclass(frozen=True)
class _Rest:
    port: int | None
    host: str
    token: str


def _token(file: Path | None, port: int | None, host: str) -> str:
    if port is None:
        return ""
    from replicator.rest.server import is_local

    if file is None:
        if not is_local(host):
            fail(
                f"--rest-host {host} is reached by others, who could pause links: say --rest-token-file, or"
                " leave it at 127.0.0.1",
                USAGE,
            )
        return ""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        fail(f"--rest-token-file {file}: {error}", USAGE)
    if not token:
        fail(f"--rest-token-file {file} is empty", USAGE)
    return token


def _into(found: LinkFile, clusters: str | None) -> list[LinkSettings]:
    if clusters is None:
        return list(found.links.values())
    wanted = [alias.strip() for alias in clusters.replace(" ", ",").split(",") if alias.strip()]
    links = [link for link in found.links.values() if link.target.alias in wanted]
    if not links:
        fail(f"no link leads into {clusters}; there are {', '.join(found.links)}", USAGE)
    return links


async def _check(
    links: Sequence[LinkSettings], found: LinkFile, going_round: list[str], *, as_json: bool
) -> int:
    from replicator.plan import plan_of

    plans = await asyncio.gather(*(plan_of(link) for link in links))
    failed = bool(going_round) or any(plan.problem for plan in plans)
    if as_json:
        print_json(
            {
                "links": [
                    plan.to_json() | {"settings": _shown(link)}
                    for link, plan in zip(links, plans, strict=True)
                ],
                "remarks": [
                    {"line": one.line, "setting": one.setting, "text": one.text} for one in found.remarks
                ],
                "circles": going_round,
            }
        )
        return FAILED if failed else 0
    for link, plan in zip(links, plans, strict=True):
        _show(link, plan)
    for line in (*(f"remark: {remark}" for remark in found.remarks), *(f"circle: {c}" for c in going_round)):
        say(line)
    return FAILED if failed else 0


def _shown(link: LinkSettings) -> dict[str, Any]:
    """All settings but secrets."""
    return link.model_dump(mode="json", exclude={"source": {"properties"}, "target": {"properties"}})


def _show(link: LinkSettings, plan: LinkPlan) -> None:
    say(f"link {link.name}: {link.source.bootstrap} to {link.target.bootstrap}")
    defaults = type(link).model_fields
    for name, value in _shown(link).items():
        field = defaults[name]
        if name not in ("source", "target") and value != _plain(field.get_default(call_default_factory=True)):
            say(f"  {name}: {', '.join(map(str, value)) if isinstance(value, list) else value}")
    if plan.problem:
        say(f"  cannot be planned: {plan.problem}")
        return
    say(f"  begins {plan.begins}")
    rows = [
        (row["topic"], row["at_target"], row["partitions"], "is there" if row["exists"] else "will be made")
        for row in plan.topics
    ]
    print_table(("topic", "at target", "partitions", "topic at target"), rows)
    for topic, reason in sorted(plan.not_copied.items()):
        say(f"  not copied: {topic}: {reason}")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


async def _run(links: Sequence[LinkSettings], metrics_port: int | None, rest: _Rest) -> int:
    from prometheus_client import CollectorRegistry, start_http_server

    from isthmus.logs import log_to_stderr
    from replicator.dedicated import run_links
    from replicator.worker import LinkStatus

    log_to_stderr()
    registry = CollectorRegistry()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    port = None
    if metrics_port is not None:
        try:
            server, _ = start_http_server(metrics_port, "127.0.0.1", registry)
        except OSError as error:
            fail(f"metrics port {metrics_port} cannot be used: {error.strerror}")
        port = server.server_port
    where = f", metrics http://127.0.0.1:{port}/metrics" if port is not None else ""
    statuses = {link.name: LinkStatus(link.name) for link in links}
    async with AsyncExitStack() as stack:
        url = await _serve(stack, links, statuses, rest)
        where += f", REST {url}/" if url else ""
        telling = [asyncio.create_task(_tell(status, where)) for status in statuses.values()]
        try:
            return await run_links(links, stop, registry, statuses, url)
        finally:
            for task in telling:
                task.cancel()
            await asyncio.gather(*telling, return_exceptions=True)


async def _serve(
    stack: AsyncExitStack, links: Sequence[LinkSettings], statuses: Mapping[str, LinkStatus], rest: _Rest
) -> str:
    """Where REST answers; nowhere unless it is wanted."""
    if rest.port is None:
        return ""
    from replicator.rest.app import make_app
    from replicator.rest.server import listen, serving

    try:
        listening, url = listen(rest.host, rest.port)
    except OSError as error:
        fail(f"REST cannot listen on {rest.host} port {rest.port}: {error.strerror or error}")
    app = make_app({link.name: link for link in links}, lambda name: statuses[name].to_json(), rest.token)
    await stack.enter_async_context(serving(app, listening))
    return url


async def _tell(status: LinkStatus, where: str) -> None:
    """Says that a link is ready, or first that it is not. A topology's supervisor takes either line as a
    process that runs: a link outlives an absent cluster, and `isthmus status` says which one that is."""
    try:
        async with asyncio.timeout(_SAY_AFTER_S):
            await status.connected.wait()
    except TimeoutError:
        silent = "; ".join(status.reach.problems.values()) if status.reach is not None else ""
        say(
            f"isthmus link {status.name} is not ready, and goes on trying: {silent or 'no answer yet'}{where}"
        )
        await status.connected.wait()
    _settle()
    say(f"isthmus link {status.name} ready{where}")


def _settle() -> None:
    """What was made until now (modules, classes) stays: the cyclic collector walked it again and again, for
    7 % of a busy link's processor time. Batches on their way are free without it."""
    gc.collect()
    gc.freeze()
