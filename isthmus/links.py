"""What the commands that work on one link share: finding it in its file, and its settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.output import USAGE, fail
from isthmus.stores import Asked
from isthmus.topologies import open_runtime, open_topology

if TYPE_CHECKING:
    from replicator.settings import LinkSettings

LinkName = Annotated[str, typer.Argument(metavar="LINK", help="source->target", show_default=False)]
File = Annotated[Path, typer.Option("--topology", "-f", help="topology YAML")]
Json = Annotated[bool, typer.Option("--json", help="for machines")]


def link_of(link: str, file: Path) -> tuple[LinkSettings, Asked]:
    """Settings of a link that the file declares, and the clusters to name when one of them is silent."""
    from topology.runtime import NotRunning
    from topology.settings import link_settings

    topology = open_topology(file)
    if link not in topology.links:
        fail(f"there is no link '{link}' in {topology.name}: {', '.join(topology.links) or 'none'}", USAGE)
    try:
        settings = link_settings(topology, open_runtime(topology), link)
    except NotRunning as error:
        fail(str(error))
    return settings, Asked(topology, topology.link_ends(link), file)
