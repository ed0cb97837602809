"""`isthmus monitor`: lag of consumer groups, once or as Prometheus metrics."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer

from isthmus.kafka_admin import Cluster, Json, TopologyFile
from isthmus.output import fail, print_json, print_table, say
from isthmus.stores import Asked, run_connectors
from isthmus.topologies import DEFAULT_FILE, bootstrap_of, open_topology


def monitor(
    cluster: Cluster,
    port: Annotated[
        int | None,
        typer.Option(help="serve Prometheus metrics here (0: a free port) until Ctrl-C", min=0, max=65535),
    ] = None,
    interval: Annotated[float, typer.Option(help="seconds between two looks")] = 10.0,
    file: TopologyFile = None,
    as_json: Json = False,
) -> None:
    """Show the lag of every group once, or with --port serve it as metrics.

    Example: isthmus monitor --cluster east --port 9308
    """
    bootstrap = bootstrap_of(cluster, file)
    if port is not None:
        asyncio.run(_serve(bootstrap, cluster, port, interval))
        return
    asked = (
        None
        if ":" in cluster
        else Asked(open_topology(file or DEFAULT_FILE), (cluster,), file or DEFAULT_FILE)
    )
    rows = run_connectors(lambda: _once(bootstrap), asked)
    if as_json:
        print_json(rows)
    else:
        columns = ("group", "state", "members", "lag", "ahead")
        print_table(columns, [[row[column] for column in columns] for row in rows])


async def _once(bootstrap: str) -> list[dict[str, object]]:
    from monitor.lag import read_group_lag
    from protocol.client import ClusterClient

    async with ClusterClient(bootstrap, client_id="isthmus-monitor") as client:
        groups = await read_group_lag(client)
    return [
        {
            "group": group.group,
            "state": group.state,
            "members": group.members,
            "lag": group.total,
            "ahead": sum(group.ahead.values()),
        }
        for group in groups
    ]


async def _serve(bootstrap: str, cluster: str, port: int, interval_s: float) -> None:
    from prometheus_client import CollectorRegistry, start_http_server

    from isthmus.logs import log_to_stderr
    from monitor.exporter import LagCollector, watch

    log_to_stderr()
    registry = CollectorRegistry()
    collector = LagCollector(cluster, registry)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        server, _ = start_http_server(port, "127.0.0.1", registry)
    except OSError as error:
        fail(f"port {port} cannot be used: {error.strerror}")
    say(f"isthmus monitor of {cluster} ready: http://127.0.0.1:{server.server_port}/metrics")
    await watch(bootstrap, collector, interval_s, stop)
    server.shutdown()
    server.server_close()
