"""`isthmus status`: every process of a running topology, and how its clusters' partitions stand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.output import print_json, print_table, say
from isthmus.topologies import DEFAULT_FILE

if TYPE_CHECKING:
    from topology.cluster_health import ClusterSilent
    from topology.models import Topology
    from topology.partition_health import PartitionHealth
    from topology.runtime import Runtime

    Health = Mapping[str, PartitionHealth | ClusterSilent]


def status(
    file: Annotated[Path, typer.Argument(help="topology YAML")] = DEFAULT_FILE,
    as_json: Annotated[bool, typer.Option("--json", help="for machines")] = False,
) -> None:
    """Show every process of a running topology: state, pid, ports, restarts, log file, what keeps a link that
    runs from copying, which simulated links between sites are cut, and for each cluster the partitions that
    are under-replicated, under min.insync.replicas, without a leader, or wait for a person's word.

    With --json clusters are rows of kind "cluster" behind the processes.

    Examples:

      isthmus status examples/two-datacenters.yaml

      isthmus status examples/stretched-three-sites.yaml --json
    """
    from isthmus.topologies import open_runtime, open_topology, run_control
    from topology.control import request

    topology = open_topology(file)
    runtime = open_runtime(topology)
    rows = run_control(request(runtime, "status"), file)
    problems, health = asyncio.run(_look(topology, runtime, rows))
    rows = [{**row, "problem": problems.get(row["name"], "")} for row in rows]
    if as_json:
        print_json([*rows, *_cluster_rows(topology, health, str(file))])
        return
    columns = ("name", "datacenter", "state", "pid", "port", "metrics_port", "restarts", "log")
    print_table(columns, [[row[column] for column in columns] for row in rows])
    for name, problem in problems.items():
        say(f"{name}: {problem}")
    for alias, found in health.items():
        for sentence in _sentences(alias, found, str(file)):
            say(f"{alias}: {sentence}")


async def _look(
    topology: Topology, runtime: Runtime, rows: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, str], Health]:
    from topology.cluster_health import cluster_health
    from topology.link_health import link_problems
    from topology.network_health import network_problems

    network, links, health = await asyncio.gather(
        network_problems(topology, runtime), link_problems(rows), cluster_health(topology, runtime, rows)
    )
    return network | links, health


def _sentences(alias: str, found: PartitionHealth | ClusterSilent, file: str) -> Sequence[str]:
    from topology.cluster_health import ClusterSilent

    if isinstance(found, ClusterSilent):
        return [f"no broker tells how its partitions are: {found}"]
    return list(found.sentences(alias, file))


def _cluster_rows(topology: Topology, health: Health, file: str) -> list[dict[str, Any]]:
    """Clusters with a ready broker, shaped as rows of processes, with what is known of their partitions."""
    from topology.cluster_health import ClusterSilent

    rows = []
    for alias, found in health.items():
        known = None if isinstance(found, ClusterSilent) else found
        well = known is not None and known.healthy
        row = {
            "name": alias,
            "kind": "cluster",
            "datacenter": topology.clusters[alias].datacenter,
            "state": "silent" if known is None else "ready",
            "problem": "" if well else "; ".join(_sentences(alias, found, file)),
        }
        rows.append(row if known is None else {**row, **known.as_json()})
    return rows
