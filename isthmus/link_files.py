"""The links of a file, whatever kind it is: a topology's YAML, or a properties file of MirrorMaker 2."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.output import USAGE, fail
from isthmus.topologies import open_runtime, open_topology

if TYPE_CHECKING:
    from replicator.mirrormaker.remarks import Remark
    from replicator.settings import LinkSettings

_STRIMZI = re.compile(r"(?m)^\s*kind:\s*[\"']?KafkaMirrorMaker2\b")
_CONNECTOR = re.compile(
    r"connector\.class[\"']?\s*[:=]\s*[\"']?[\w.]*\bMirror(Source|Checkpoint|Heartbeat)Connector\b"
)
_CLUSTERS = re.compile(r"(?m)^\s*clusters\s*[=:]")
_WRITE = (
    "Write connect-mirror-maker.properties (with a pattern's backslashes twice): clusters = A, B;"
    " A->B.enabled = true"
)
_OF_CONNECT = (
    f"{_WRITE}, A and B for source.cluster.alias and target.cluster.alias; all settings of the source and the"
    " checkpoint connector behind A->B., as they are. To go on where they stopped (stop them first):"
    " A->B.name = the source connector's name, and B.offset.storage.topic as in the worker's file"
)
_OF_STRIMZI = (
    f"{_WRITE}, A and B for the aliases; each cluster's bootstrapServers as A.bootstrap.servers, its"
    " authentication as A.security.protocol, A.sasl.… and A.ssl.…; topicsPattern and groupsPattern as"
    " A->B.topics and A->B.groups; config of the connectors behind A->B., as it is. To go on where it"
    " stopped: A->B.name = A->B.MirrorSourceConnector, and the target cluster's offset.storage.topic"
    " (else mirrormaker2-cluster-offsets) and group.id (else mirrormaker2-cluster) behind B."
)


@dataclass(frozen=True)
class LinkFile:
    """All links of a file by name, and remarks on settings (MirrorMaker 2's only)."""

    links: dict[str, LinkSettings]
    remarks: tuple[Remark, ...] = ()
    rest: Mapping[str, Any] = field(default_factory=dict)
    """`topology.models.Rest`, of a topology that has it."""


def open_link_file(file: Path, data_directory: Path | None, only: Sequence[str]) -> LinkFile:
    """Ends the command with every mistake of the file. `only`: links that are wanted; none: all."""
    _not_of_connect(file)
    if of_mirrormaker(file):
        return _mirrormaker(file, only)
    return _topology(file, data_directory, only)


def _not_of_connect(file: Path) -> None:
    """Ends the command for what other front ends of MirrorMaker 2 take, with how to write it here."""
    try:
        text = file.read_text(encoding="iso-8859-1")
    except OSError:
        return  # said by whoever opens it
    if _STRIMZI.search(text):
        fail(f"{file} is a KafkaMirrorMaker2 of Strimzi, which is not read. {_OF_STRIMZI}", USAGE)
    if _CONNECTOR.search(text) and not _CLUSTERS.search(text):
        fail(f"{file} is of a connector of Kafka Connect, which is not read. {_OF_CONNECT}", USAGE)


def of_mirrormaker(file: Path) -> bool:
    """Whether it is a properties file of MirrorMaker 2, and not a topology."""
    from replicator.mirrormaker.file import is_mirrormaker_text

    if file.suffix in (".yaml", ".yml"):
        return False
    text = _head(file)
    return file.suffix == ".properties" or is_mirrormaker_text(text)


def _head(file: Path) -> str:
    try:
        return file.read_text(encoding="iso-8859-1")
    except OSError as error:
        fail(f"{file}: {error.strerror}", USAGE)


def _mirrormaker(file: Path, only: Sequence[str]) -> LinkFile:
    from replicator.mirrormaker.file import read_mirrormaker_file
    from replicator.mirrormaker.remarks import MirrorMakerFileError

    try:
        found = read_mirrormaker_file(file)
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
