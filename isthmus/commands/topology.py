"""`isthmus topology …`: check and show topology files; compare running clusters with them, and apply them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from isthmus.commands.topology_plan import apply, plan
from isthmus.output import USAGE, fail, note, print_json, say
from protocol.counted import counted

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Check, show and apply topology files.")
app.command()(plan)
app.command()(apply)

File = Annotated[Path, typer.Argument(help="topology YAML", show_default=False)]


@app.command()
def validate(
    file: File,
    as_json: Annotated[bool, typer.Option("--json", help="for machines")] = False,
) -> None:
    """Check a file: all its mistakes with line numbers, and warnings about what it will mean.

    Warnings (round trips above 30 ms with the produce latency to expect, what the loss of a site stops)
    do not make a file invalid. Ends with 2 for a file with mistakes.

    Example: isthmus topology validate examples/two-datacenters.yaml
    """
    from topology.load import load_topology
    from topology.problems import TopologyError
    from topology.warnings import topology_warnings

    try:
        topology = load_topology(file)
    except TopologyError as error:
        if as_json:
            problems = [{"line": p.line, "where": p.where, "message": p.message} for p in error.problems]
            print_json({"file": str(file), "valid": False, "problems": problems, "warnings": []})
            raise typer.Exit(USAGE) from None
        fail(str(error), USAGE)
    warnings = topology_warnings(topology)
    if as_json:
        print_json({"file": str(file), "valid": True, "problems": [], "warnings": warnings})
    else:
        for warning in warnings:
            note(f"warning: {warning}")
        clusters = counted(len(topology.clusters), "cluster")
        links, backups = counted(len(topology.links), "link"), counted(len(topology.backups), "backup")
        say(f"{file}: valid ({clusters}, {links}, {backups})")


@app.command()
def show(file: File) -> None:
    """The whole topology as JSON, with all defaults filled in and secrets left out.

    Example: isthmus topology show examples/two-datacenters.yaml
    """
    from isthmus.topologies import open_topology

    topology = open_topology(file)
    content = json.loads(topology.model_dump_json())
    for store in content["object_stores"].values():
        for key in ("access_key", "secret_key"):
            store[key] = None if store[key] is None else "(hidden)"
    print_json(content)
