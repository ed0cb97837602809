"""`isthmus replicate FILE --link A->B`: run one link until it is stopped."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.output import USAGE, fail, say
from isthmus.topologies import DataDirectory, open_runtime, open_topology

if TYPE_CHECKING:
    from replicator.settings import LinkSettings


def replicate(
    file: Annotated[Path, typer.Argument(help="topology YAML", show_default=False)],
    link: Annotated[
        str | None, typer.Option("--link", help="source->target; may be left out if there is only one")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Prometheus port; 0 takes a free one", min=0, max=65535)
    ] = None,
    data_directory: DataDirectory = None,
) -> None:
    """Copy topics, offsets and groups of one link until SIGTERM or Ctrl-C.

    Progress is kept in the target cluster: stop and start it anywhere. Ends with 3 when something could not
    be copied (a gap), with 1 when it failed.

    Example: isthmus replicate examples/two-datacenters.yaml --link 'east->west'
    """
    import uvloop

    from topology.runtime import NotRunning
    from topology.settings import link_settings

    topology = open_topology(file, data_directory)
    names = list(topology.links)
    if link is None and len(names) == 1:
        link = names[0]
    if link not in names:
        fail(f"say which link: --link {' or '.join(names) or '(the file declares none)'}", USAGE)
    try:
        settings = link_settings(topology, open_runtime(topology), link)
    except NotRunning as error:
        fail(str(error))
    raise typer.Exit(uvloop.run(_run(settings, metrics_port)))


async def _run(settings: LinkSettings, metrics_port: int | None) -> int:
    from prometheus_client import CollectorRegistry, start_http_server

    from isthmus.logs import log_to_stderr
    from replicator.worker import run_link

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
    say(f"isthmus link {settings.name} ready{where}")
    return await run_link(settings, stop, registry)
