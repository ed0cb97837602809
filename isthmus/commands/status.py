"""`isthmus status`: every process of a running topology."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from isthmus.output import print_json, print_table, say
from isthmus.topologies import DEFAULT_FILE


def status(
    file: Annotated[Path, typer.Argument(help="topology YAML")] = DEFAULT_FILE,
    as_json: Annotated[bool, typer.Option("--json", help="for machines")] = False,
) -> None:
    """Show every process of a running topology: state, pid, ports, restarts, log file, what keeps a link that
    runs from copying, and which simulated links between sites are cut.

    Example: isthmus status examples/two-datacenters.yaml --json
    """
    from isthmus.topologies import open_runtime, open_topology, run_control
    from topology.control import request
    from topology.link_health import link_problems
    from topology.network_health import network_problems

    topology = open_topology(file)
    runtime = open_runtime(topology)
    rows = run_control(request(runtime, "status"))
    problems = asyncio.run(network_problems(topology, runtime)) | asyncio.run(link_problems(rows))
    rows = [{**row, "problem": problems.get(row["name"], "")} for row in rows]
    if as_json:
        print_json(rows)
        return
    columns = ("name", "datacenter", "state", "pid", "port", "metrics_port", "restarts", "log")
    print_table(columns, [[row[column] for column in columns] for row in rows])
    for name, problem in problems.items():
        say(f"{name}: {problem}")
