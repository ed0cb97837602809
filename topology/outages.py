"""Why a cluster of a topology does not answer, in one line: which, where, what its processes do, what to do.

Owns turning "connection refused at 127.0.0.1:24011" into the cluster that people know, with what the
supervisor says of its processes. Knows nothing of the request that failed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from typing import Any

from topology.control import ControlError, request
from topology.ensembles import zookeeper_members
from topology.models import Topology
from topology.runtime import NotRunning, Runtime
from topology.sites import broker_name

_CONNECT_S = 2.0


async def outages(topology: Topology, runtime: Runtime, clusters: Collection[str], file: str) -> list[str]:
    """One line for each of the clusters that accepts no connection now; `file` is the topology's YAML."""
    lines = []
    for cluster in clusters:
        try:
            addresses = runtime.bootstrap_servers(topology, cluster)
        except NotRunning as error:
            lines.append(str(error))
            continue
        if not await _accepts(addresses):
            why = await _why(topology, runtime, cluster, file)
            lines.append(f"cluster '{cluster}' does not answer at {addresses}: {why}")
    return lines


async def _accepts(addresses: str) -> bool:
    """Whether one of `host:port,…` takes a connection; they are all tried at once."""
    asking = [asyncio.create_task(_takes(address)) for address in addresses.split(",")]
    try:
        for answer in asyncio.as_completed(asking):
            if await answer:
                return True
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    return False


async def _takes(address: str) -> bool:
    host, _, port = address.strip().rpartition(":")
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True
    return False


async def _why(topology: Topology, runtime: Runtime, cluster: str, file: str) -> str:
    if not topology.clusters[cluster].brokers:
        return (
            f"'{topology.name}' does not run it; look whether its brokers run and this machine may reach them"
        )
    try:
        rows: list[dict[str, Any]] = await request(runtime, "status")
    except (NotRunning, ControlError) as error:
        return str(error).replace("isthmus up FILE", f"isthmus up {file}")
    names = [server.name for server in zookeeper_members(cluster, topology.clusters[cluster])]
    names += [broker_name(cluster, broker.id) for broker in topology.clusters[cluster].brokers]
    rows = [row for row in rows if row["name"] in names]
    stopped = [row["name"] for row in rows if row["state"] == "stopped"]
    if stopped:
        verb = "is" if len(stopped) == 1 else "are"
        return f"{', '.join(stopped)} {verb} stopped; isthmus start {cluster} -f {file} starts it again"
    others = [f"{row['name']} is {row['state']}, its log is {row['log']}" for row in rows]
    return "; ".join(others) or "the running supervisor knows no process of it; was the file changed since?"
