"""The links of a file, whatever kind it is: a topology's YAML, or a MirrorMaker 2 in one of its forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.output import USAGE, fail
from isthmus.topologies import open_runtime, open_topology

if TYPE_CHECKING:
    from replicator.mirrormaker.remarks import Remark
    from replicator.settings import LinkSettings


@dataclass(frozen=True)
class LinkFile:
    """All links of a file by name, and remarks on settings (MirrorMaker 2's only)."""

    links: dict[str, LinkSettings]
    remarks: tuple[Remark, ...] = ()
    rest: Mapping[str, Any] = field(default_factory=dict)
    """`topology.models.Rest`, of a topology that has it."""


def open_link_file(file: Path, data_directory: Path | None, only: Sequence[str]) -> LinkFile:
    """Ends the command with every mistake of the file. `only`: links that are wanted; none: all."""
    if of_mirrormaker(file):
        return _mirrormaker(file, only)
    return _topology(file, data_directory, only)


def of_mirrormaker(file: Path) -> bool:
    """Whether it is MirrorMaker 2's (properties, connectors, Strimzi's), and not a topology."""
    from replicator.mirrormaker.forms import is_mirrormaker_file

    try:
        return is_mirrormaker_file(file)
    except OSError:
        return file.suffix not in (".yaml", ".yml")  # said by whoever opens it


def _mirrormaker(file: Path, only: Sequence[str]) -> LinkFile:
    from replicator.mirrormaker.forms import read_links
    from replicator.mirrormaker.remarks import MirrorMakerFileError

    try:
        found = read_links(file)
    except MirrorMakerFileError as error:
        fail(str(error), USAGE)
    links = {link.name: link for link in found.links}
    return LinkFile({name: links[name] for name in _chosen(list(links), only)}, found.remarks)


def _topology(file: Path, data_directory: Path | None, only: Sequence[str]) -> LinkFile:
    from topology.runtime import NotRunning
    from topology.settings import link_settings

    topology = open_topology(file, data_directory)
    try:
        runtime = open_runtime(topology)
        names = _chosen(list(topology.links), only)
        links = {name: link_settings(topology, runtime, name) for name in names}
        return LinkFile(links, rest=topology.rest.model_dump() if topology.rest is not None else {})
    except NotRunning as error:
        fail(str(error))


def _chosen(names: list[str], only: Sequence[str]) -> list[str]:
    unknown = [name for name in only if name not in names]
    if unknown or not names:
        there = ", ".join(names) or "none"
        fail(
            f"there is no link '{unknown[0]}' in the file: {there}" if unknown else "the file has no link",
            USAGE,
        )
    return [name for name in names if not only or name in only]
