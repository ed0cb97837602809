"""`isthmus stop PART …` for a running topology."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.topologies import DEFAULT_FILE


def stop(
    parts: Annotated[
        list[str],
        typer.Argument(help="process, cluster, link, store or datacenter:NAME", show_default=False),
    ],
    file: Annotated[Path, typer.Option("--topology", "-f", help="topology YAML")] = DEFAULT_FILE,
) -> None:
    """Stop parts of a running topology cleanly; they stay down until `isthmus start`.

    Example: isthmus stop 'link-east-to-west'
    """
    from isthmus.topologies import control_parts

    control_parts("stop", parts, file)
