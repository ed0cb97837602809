"""What backup and restore commands share: the declared backup, the newest one stored, clear failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from isthmus.output import FAILED, USAGE, fail
from isthmus.topologies import unanswered

if TYPE_CHECKING:
    from connectors.manifest import Manifest
    from connectors.object_store import ObjectStoreSettings
    from topology.models import Backup, Topology

T = TypeVar("T")
BackupName = Annotated[str, typer.Argument(metavar="NAME", help="backup as the topology declares it")]
BackupId = Annotated[str | None, typer.Option("--id", help="backup id; the newest of NAME by default")]


def pick_backup(topology: Topology, name: str) -> Backup:
    if name not in topology.backups:
        known = ", ".join(topology.backups) or "none"
        fail(f"{topology.name} declares no backup '{name}'; it declares: {known}", USAGE)
    return topology.backups[name]


@dataclass(frozen=True)
class Asked:
    """The clusters that a command needs, so that it can say which of them does not answer, and why."""

    topology: Topology
    clusters: tuple[str, ...]
    file: Path


def run_connectors(work: Callable[[], Coroutine[Any, Any, T]], asked: Asked | None = None) -> T:
    """Run it, and turn what can go wrong with clusters and object stores into one clear line."""
    from connectors.errors import ConnectorError
    from protocol.errors import NotThere, ProtocolError
    from topology.runtime import NotRunning

    try:
        return asyncio.run(work())
    except (ConnectorError, ProtocolError, NotRunning) as error:
        silent = unanswered(asked.topology, asked.clusters, asked.file) if asked is not None else []
        fail("\nisthmus: ".join([*silent, str(error)]), USAGE if isinstance(error, NotThere) else FAILED)


async def find_manifest(settings: ObjectStoreSettings, name: str, backup_id: str | None) -> Manifest:
    """The manifest of `backup_id`, or of the newest backup of `name` in the store."""
    from connectors.catalogue import newest_backup, read_manifest
    from connectors.object_store import open_store

    async with open_store(settings) as store:
        if backup_id is not None:
            return await read_manifest(store, backup_id)
        return await newest_backup(store, name)
