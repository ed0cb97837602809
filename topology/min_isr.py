"""Lowering `min.insync.replicas` while a site is lost, and taking it back when the site is home again.

A cluster over two sites that shall lose nothing needs more replicas in sync than one site has, so after the
loss of a site it refuses acks=all writes until somebody lowers the number. Done by hand, topic by topic, the
way back is forgotten; here one step does it for every topic, and an undo file keeps what was there before.
Works with any Kafka cluster. Must not ask the user (`isthmus.commands.min_isr`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from protocol.client import ClusterClient, ConfigSource

SETTING = "min.insync.replicas"


class UndoFileError(Exception):
    """The undo file is missing, damaged or of another cluster; the message says which."""


@dataclass(frozen=True)
class Change:
    """One topic's number. `override` is what the topic itself sets; None: it follows the broker's default."""

    topic: str
    before: int
    override: str | None
    after: int


@dataclass(frozen=True)
class Shortage:
    """A partition that would refuse acks=all writes."""

    topic: str
    partition: int
    in_sync: int
    wanted: int


async def plan_lowering(client: ClusterClient, to: int) -> list[Change]:
    """Every topic, internal ones too, that wants more replicas in sync than `to`."""
    metadata = await client.metadata(None)
    described = await client.describe_configs(list(metadata.topics), keys=[SETTING])
    changes = []
    for topic, entries in sorted(described.items()):
        entry = entries[SETTING]
        before = int(entry.value or "1")
        if before > to:
            own = entry.value if entry.source is ConfigSource.TOPIC else None
            changes.append(Change(topic, before, own, to))
    return changes


async def lower(client: ClusterClient, changes: Iterable[Change], undo: Path) -> None:
    """Keeps what was there in `undo` first, so that nothing is changed that cannot be taken back."""
    wanted = list(changes)
    kept = {change.topic: change for change in _read(undo, client)} if undo.exists() else {}
    for change in wanted:
        kept.setdefault(change.topic, change)  # lowered twice: the first value is the one to return to
    content = {
        "cluster_id": client.cluster_id,
        "changes": [asdict(kept[topic]) for topic in sorted(kept)],
    }
    fresh = undo.with_name(f"{undo.name}.tmp")
    fresh.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(fresh, undo)
    await client.alter_configs({change.topic: {SETTING: str(change.after)} for change in wanted})


async def plan_restoring(client: ClusterClient, undo: Path) -> tuple[list[Change], list[Shortage]]:
    """What was lowered and still is there, and the partitions that would then refuse writes.

    Raises UndoFileError.
    """
    changes = _read(undo, client)
    metadata = await client.metadata(None)
    present = [change for change in changes if change.topic in metadata.topics]
    short = [
        Shortage(change.topic, index, len(partition.isr), change.before)
        for change in present
        for index, partition in sorted(metadata.topics[change.topic].partitions.items())
        if len(partition.isr) < change.before
    ]
    return present, short


async def restore(client: ClusterClient, changes: Iterable[Change], undo: Path) -> None:
    """Back to what each topic had; the undo file goes when all are."""
    await client.alter_configs({change.topic: {SETTING: change.override} for change in changes})
    undo.unlink()


def _read(undo: Path, client: ClusterClient) -> list[Change]:
    try:
        content = json.loads(undo.read_text(encoding="utf-8"))
        changes = [Change(**item) for item in content["changes"]]
        cluster = content["cluster_id"]
    except FileNotFoundError:
        raise UndoFileError(
            f"there is no undo file {undo.absolute()}: nothing was lowered with it, or it was taken back; "
            "if you lowered from another directory, name its file with --undo. Nothing was changed"
        ) from None
    except OSError as error:
        raise UndoFileError(f"{undo.absolute()} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UndoFileError(f"{undo} is no undo file: {error}") from None
    if cluster != client.cluster_id:
        raise UndoFileError(f"{undo} is of cluster {cluster}, this is {client.cluster_id}")
    return changes
