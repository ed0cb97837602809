"""`isthmus replicate FILE`: run the links of a topology, or of MirrorMaker 2's file, until stopped."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.link_files import LinkFile, open_link_file
from isthmus.output import FAILED, USAGE, fail, note, print_json, print_table, say
from isthmus.ports import cannot_listen
from isthmus.rest_options import RestAccess, rest_access
from isthmus.topologies import DataDirectory

if TYPE_CHECKING:
    from replicator.connected import LinkStatus
    from replicator.plan import LinkPlan
    from replicator.settings import LinkSettings

_SAY_AFTER_S = 2.0
"""A cluster that refuses may be starting; it is given so long before anybody is told."""
_SILENT_AFTER_S = 4.0
"""With that a little longer than a link itself takes to notice that a cluster is silent."""


def replicate(
    file: Annotated[Path, typer.Argument(help="topology, or a file of MirrorMaker 2", show_default=False)],
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
        str | None,
        typer.Option(help="address for REST, by default 127.0.0.1; others need --rest-token-file"),
    ] = None,
    rest_token_file: Annotated[
        Path | None, typer.Option(help="REST asks for what this file holds as a bearer token")
    ] = None,
    rest_keystore: Annotated[
        Path | None, typer.Option(help="key and certificate (PEM): REST speaks HTTPS, and nothing in clear")
    ] = None,
    rest_client_ca: Annotated[
        Path | None, typer.Option(help="REST lets in clients with a certificate that this one (PEM) signed")
    ] = None,
    no_rest: Annotated[bool, typer.Option("--no-rest", help="whatever the file says of `rest`")] = False,
    data_directory: DataDirectory = None,
) -> None:
    """Copy topics, offsets and groups of links until SIGTERM or Ctrl-C.

    FILE is a topology, or MirrorMaker 2's as it is: connect-mirror-maker.properties, Strimzi's
    KafkaMirrorMaker2 (Secrets beside it or mounted), or connectors of a Connect cluster (JSON of its REST
    API, with connect-distributed.properties beside it). Settings without a meaning here are named, unknown
    ones are errors. A link whose MirrorMaker 2 was stopped goes on where that stopped: docs/mirrormaker.md.
    docs/link-settings.md lists all settings of a link.

    Start it several times, on any hosts, with the same file: the processes share the partitions of each link,
    and what one had goes on at the others within seconds when it ends or is lost.

    Progress is kept in the target cluster: stop and start it anywhere. Ends with 3 when something could not
    be copied (a gap), with 1 when a link failed (the others go on) or never reached both its clusters, with 2
    for a wrong file. A link is ready once both its clusters have answered; until then it goes on trying.

    Examples:

    isthmus replicate examples/two-datacenters.yaml --link 'east->west'

    isthmus replicate connect-mirror-maker.properties --check

    isthmus replicate connect-mirror-maker.properties --clusters west --metrics-port 9464

    kubectl get kmm2/mover secret/mover-user -o yaml > mover.yaml; isthmus replicate mover.yaml --check

    curl -s connect:8083/connectors?expand=info > connectors.json; isthmus replicate connectors.json --check

    isthmus replicate links.yaml --rest-port 8083    # then http://127.0.0.1:8083/ in a browser

    isthmus replicate links.yaml --rest-port 8083 --rest-keystore rest.pem --rest-token-file token
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
    options = {
        "port": rest_port,
        "host": rest_host,
        "token_file": rest_token_file,
        "keystore": rest_keystore,
        "client_ca": rest_client_ca,
    }
    rest = RestAccess() if no_rest else rest_access(options, found.rest)
    raise typer.Exit(uvloop.run(_run(links, metrics_port, rest)))


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


def _changed(link: LinkSettings) -> dict[str, Any]:
    """What is not as it is by default; of `flow` each by itself."""
    ends = {"source", "target"}
    values = link.model_dump(mode="json", exclude=ends, exclude_defaults=True)
    flow = values.pop("flow", {})
    return values | {f"flow.{name}": value for name, value in flow.items()}


def _show(link: LinkSettings, plan: LinkPlan) -> None:
    say(f"link {link.name}: {link.source.bootstrap} to {link.target.bootstrap}")
    for name, value in _changed(link).items():
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


async def _run(links: Sequence[LinkSettings], metrics_port: int | None, rest: RestAccess) -> int:
    from prometheus_client import CollectorRegistry, disable_created_metrics, start_http_server

    from isthmus.logs import log_to_stderr
    from replicator.connected import LinkStatus
    from replicator.dedicated import run_links

    log_to_stderr()
    # Else each counter has a second series with the time of its first value.
    disable_created_metrics()  # type: ignore[no-untyped-call]  # it says nothing of types
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
            cannot_listen(f"metrics port {metrics_port} cannot be used", error, "--metrics-port")
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
    stack: AsyncExitStack, links: Sequence[LinkSettings], statuses: Mapping[str, LinkStatus], rest: RestAccess
) -> str:
    """Where REST answers; nowhere unless it is wanted."""
    if rest.port is None:
        return ""
    from replicator.rest.app import make_app
    from replicator.rest.server import listen, serving

    try:
        listening, url = listen(rest.host, rest.port, rest.scheme)
    except OSError as error:
        what = f"REST cannot listen on {rest.host} port {rest.port}"
        cannot_listen(what, error, "--rest-port", "name an address of this machine by --rest-host")
    app = make_app(
        {link.name: link for link in links},
        lambda name: statuses[name].to_json(),
        rest.token,
        any_host=rest.any_host,
    )
    await stack.enter_async_context(serving(app, listening, rest.context))
    return url


async def _tell(status: LinkStatus, where: str) -> None:
    """Says that a link is ready, or first that it is not. A topology's supervisor takes either line as a
    process that runs: a link outlives an absent cluster, and `isthmus status` says which one that is."""
    from replicator.reach import set_within

    connected = await set_within(status.connected, _SAY_AFTER_S)
    if not connected and not status.problems:
        connected = await set_within(status.connected, _SILENT_AFTER_S)
    if not connected:
        silent = "; ".join(status.problems.values()) or "no answer yet"
        say(f"isthmus link {status.name} is not ready, and goes on trying: {silent}{where}")
        await status.connected.wait()
    _settle()
    say(f"isthmus link {status.name} ready{where}")


def _settle() -> None:
    """What was made until now (modules, classes) stays: the cyclic collector walked it again and again, for
    7 % of a busy link's processor time. Batches on their way are free without it."""
    gc.collect()
    gc.freeze()
