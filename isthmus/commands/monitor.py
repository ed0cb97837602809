"""`isthmus monitor`: lag of consumer groups, once or as Prometheus metrics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.kafka_admin import Cluster, Json, TopologyFile
from isthmus.output import print_json, print_table
from isthmus.stores import Asked, run_connectors
from isthmus.topologies import DEFAULT_FILE, access_of, open_topology
from isthmus.watching import Port, serve

if TYPE_CHECKING:
    from protocol.client.access import Access


def monitor(
    cluster: Cluster,
    port: Port = None,
    interval: Annotated[float, typer.Option(help="seconds between two looks")] = 10.0,
    file: TopologyFile = None,
    as_json: Json = False,
) -> None:
    """Show the lag of every group once, or with --port serve it as metrics.

    Example: isthmus monitor --cluster east --port 9308
    """
    access = access_of(cluster, file)
    if port is not None:
        asyncio.run(_serve(access, cluster, port, interval))
        return
    asked = (
        None
        if ":" in cluster
        else Asked(open_topology(file or DEFAULT_FILE), (cluster,), file or DEFAULT_FILE)
    )
    rows = run_connectors(lambda: _once(access), asked)
    if as_json:
        print_json(rows)
    else:
        columns = ("group", "state", "members", "lag", "ahead")
        print_table(columns, [[row[column] for column in columns] for row in rows])


async def _once(access: Access) -> list[dict[str, object]]:
    from monitor.lag import read_group_lag

    async with access.client("isthmus-monitor") as client:
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


async def _serve(access: Access, cluster: str, port: int, interval_s: float) -> None:
    from prometheus_client import CollectorRegistry

    from monitor.exporter import LagCollector, watch

    registry = CollectorRegistry()
    collector = LagCollector(cluster, registry)
    await serve(
        f"monitor of {cluster}", registry, port, lambda stop: watch(access, collector, interval_s, stop)
    )
