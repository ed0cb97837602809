"""`isthmus kill PART …` for a running topology."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.topologies import DEFAULT_FILE


def kill(
    parts: Annotated[
        list[str],
        typer.Argument(help="process, cluster, link, store or datacenter:NAME", show_default=False),
    ],
    file: Annotated[Path, typer.Option("--topology", "-f", help="topology YAML")] = DEFAULT_FILE,
) -> None:
    """Kill parts of a running topology with SIGKILL, as a power cut would.

    They stay down until `isthmus start`.

    Example: isthmus kill datacenter:east
    """
    from isthmus.topologies import control_parts

    control_parts("kill", parts, file)
