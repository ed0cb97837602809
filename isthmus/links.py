"""What the commands that work on one link share: finding it in its file, its settings, and names
that are told by patterns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.link_files import of_mirrormaker, open_link_file
from isthmus.output import USAGE, fail
from isthmus.stores import Asked
from isthmus.topologies import open_topology

if TYPE_CHECKING:
    from replicator.settings import LinkSettings

LinkName = Annotated[str, typer.Argument(metavar="LINK", help="source->target", show_default=False)]
File = Annotated[
    Path,
    typer.Option(
        "--topology",
        "-f",
        help="topology YAML, or a file of MirrorMaker 2 (properties, Strimzi's, connectors)",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="for machines")]


def link_of(link: str, file: Path, *, mirrors: bool | None = False) -> tuple[LinkSettings, Asked | None]:
    """Settings of a link that the file declares, and, of a topology, the clusters to name when one of them is
    silent. `mirrors`: for commands about identical offsets, which only such links have; False: for commands
    about ledgers, which they do not have; None: for both kinds."""
    settings = open_link_file(file, None, [link]).links[link]
    if mirrors and settings.offsets != "identical":
        fail(f"link {link} translates offsets: what has mirrors says `offsets: identical` in {file}", USAGE)
    if settings.offsets == "identical" and mirrors is False:
        fail(
            f"link {link} keeps offsets: they are the same on both sides, and it has no ledger that this"
            f" command could go by. See isthmus mirrors status '{link}'",
            USAGE,
        )
    if of_mirrormaker(file):
        return settings, None
    topology = open_topology(file)
    return settings, Asked(topology, topology.link_ends(link), file)


def target_only(asked: Asked | None) -> Asked | None:
    """For commands that need the target and not the source."""
    return replace(asked, clusters=asked.clusters[1:]) if asked is not None else None


def source_only(asked: Asked | None) -> Asked | None:
    """The other way round."""
    return replace(asked, clusters=asked.clusters[:1]) if asked is not None else None


def patterns(texts: list[str] | None, option: str) -> tuple[str, ...]:
    """Regular expressions for whole names, with commas between them or an option each."""
    from replicator.filters import split_patterns

    try:
        return tuple(part for text in texts or () for part in split_patterns(text))
    except ValueError as error:
        fail(f"{option}: {error}", USAGE)
