"""`isthmus start PART …` for a running topology."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.topologies import DEFAULT_FILE


def start(
    parts: Annotated[
        list[str],
        typer.Argument(help="process, cluster, link, store or datacenter:NAME", show_default=False),
    ],
    file: Annotated[Path, typer.Option("--topology", "-f", help="topology YAML")] = DEFAULT_FILE,
) -> None:
    """Start processes, clusters, links, object stores or whole datacenters of a running topology.

    Example: isthmus start restore
    """
    from isthmus.topologies import control_parts

    control_parts("start", parts, file)
