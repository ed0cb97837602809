"""`isthmus status`: every process of a running topology, and how its clusters' partitions stand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.output import DIFFERENCES, note, print_json, print_table, say
from isthmus.topologies import DEFAULT_FILE

if TYPE_CHECKING:
    from topology.cluster_health import ClusterHealth
    from topology.models import Topology
    from topology.runtime import Runtime

    Health = Mapping[str, ClusterHealth]


def status(
    file: Annotated[Path, typer.Argument(help="topology YAML")] = DEFAULT_FILE,
    as_json: Annotated[bool, typer.Option("--json", help="for machines")] = False,
) -> None:
    """Show every process of a running topology: state, pid, ports, restarts, log file, what keeps a link that
    runs from copying, which simulated links between sites are cut, and for each cluster the ZooKeeper servers
    that do not serve, the brokers that ZooKeeper does not hear from, and the partitions that take no writes,
    are under-replicated, under min.insync.replicas, without a leader, or wait for a person's word.

    With --json clusters are rows of kind "cluster" behind the processes. Exit code 0: all that is declared
    runs and is well; 3: something is not, and is named.

    Examples:

      isthmus status examples/two-datacenters.yaml

      isthmus status examples/stretched-three-sites.yaml --json
    """
    from isthmus.topologies import open_runtime, open_topology, run_control
    from topology.control import request

    topology = open_topology(file)
    runtime = open_runtime(topology)
    try:
        rows = run_control(request(runtime, "status"), file)
    except typer.Exit:
        if topology.links:
            note(f"links that isthmus replicate runs: isthmus links status LINK --topology {file}")
        raise
    problems, health = asyncio.run(_look(topology, runtime, rows, str(file)))
    rows = [{**row, "problem": problems.get(row["name"], "")} for row in rows]
    if as_json:
        print_json([*rows, *_cluster_rows(topology, health, str(file))])
    else:
        _show(rows, problems, health, str(file))
    lacking = [row for row in rows if row["state"] != "ready"] or problems
    if lacking or not all(found.healthy for found in health.values()):
        raise typer.Exit(DIFFERENCES)


def _show(rows: Sequence[Mapping[str, Any]], problems: Mapping[str, str], health: Health, file: str) -> None:
    columns = ("name", "datacenter", "state", "pid", "port", "metrics_port", "restarts", "log")
    print_table(columns, [[row[column] for column in columns] for row in rows])
    for name, problem in problems.items():
        say(f"{name}: {problem}")
    for alias, found in health.items():
        for sentence in found.sentences(alias, file):
            say(f"{alias}: {sentence}")


async def _look(
    topology: Topology, runtime: Runtime, rows: Sequence[Mapping[str, Any]], file: str
) -> tuple[dict[str, str], Health]:
    from topology.cluster_look import cluster_health
    from topology.link_health import link_problems
    from topology.network_health import network_problems

    network, links, health = await asyncio.gather(
        network_problems(topology, runtime, file),
        link_problems(rows),
        cluster_health(topology, runtime, rows),
    )
    return network | links, health


def _cluster_rows(topology: Topology, health: Health, file: str) -> list[dict[str, Any]]:
    """Clusters with a ready broker, shaped as rows of processes, with what is known of their partitions."""
    return [
        {
            "name": alias,
            "kind": "cluster",
            "datacenter": topology.clusters[alias].datacenter,
            "state": "silent" if found.partitions is None else "ready",
            "problem": "" if found.healthy else "; ".join(found.sentences(alias, file)),
            **found.as_json(),
        }
        for alias, found in health.items()
    ]
