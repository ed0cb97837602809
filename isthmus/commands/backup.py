"""`isthmus backup …`: take, list, describe and validate backups that a topology declares."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.output import DIFFERENCES, print_json, print_table, say
from isthmus.progress import ProgressDisplay
from isthmus.stores import Asked, BackupId, BackupName, pick_backup, run_connectors
from isthmus.times import shown
from isthmus.topologies import DEFAULT_FILE, DataDirectory, open_runtime, open_topology
from protocol.counted import counted

if TYPE_CHECKING:
    from connectors.manifest import Manifest
    from connectors.object_store import ObjectStoreSettings

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Backups in S3.")
File = Annotated[Path, typer.Option("--topology", "-f", help="topology YAML")]
Json = Annotated[bool, typer.Option("--json", help="for machines")]


@app.command()
def create(
    name: BackupName,
    file: File = DEFAULT_FILE,
    backup_id: Annotated[str | None, typer.Option("--id", help="by default NAME-TIME")] = None,
    as_json: Json = False,
    data_directory: DataDirectory = None,
) -> None:
    """Take a finite snapshot of the topics and group offsets that the backup NAME declares.

    A backup is in the catalogue only when it is complete; ends with 3 when it has gaps. What stands behind a
    transaction that is open is not in it, and said; ends with 3 when that one is older than 15 minutes.

    Example: isthmus backup create flights
    """
    from connectors.backup import backup
    from topology.settings import backup_settings, new_backup_id

    topology = open_topology(file, data_directory)
    pick_backup(topology, name)
    runtime = open_runtime(topology)
    with ProgressDisplay() as show:
        manifest = run_connectors(
            lambda: backup(
                backup_settings(topology, runtime, name, backup_id or new_backup_id(name)),
                lambda progress: show(progress.phase, progress.done, progress.total),
            ),
            Asked(topology, (topology.backups[name].cluster,), file),
        )
    _show(manifest, as_json)
    raise typer.Exit(manifest.exit_code)


@app.command("list")
def list_command(
    name: BackupName, file: File = DEFAULT_FILE, as_json: Json = False, data_directory: DataDirectory = None
) -> None:
    """List what the object store of the backup NAME holds.

    Example: isthmus backup list flights
    """
    from connectors.catalogue import list_backups

    store = _store(name, file, data_directory)
    entries = run_connectors(lambda: _with_store(store, list_backups))
    rows = [
        {
            "backup": entry.backup_id,
            "finished": _time(entry.manifest.finished_ms) if entry.manifest else None,
            "format": entry.manifest.format if entry.manifest else None,
            "topics": len(entry.manifest.topics) if entry.manifest else None,
            "records": entry.manifest.records if entry.manifest else None,
            "bytes": entry.manifest.bytes if entry.manifest else None,
            "held_up": len(entry.manifest.held_up()) if entry.manifest else None,
            "problem": entry.problem or ("has gaps" if entry.manifest and entry.manifest.exit_code else ""),
        }
        for entry in entries
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        say(f"no backups in {store.location()}")
    if any(entry.manifest is None for entry in entries):
        raise typer.Exit(DIFFERENCES)


@app.command()
def describe(
    name: BackupName,
    backup_id: BackupId = None,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
    data_directory: DataDirectory = None,
) -> None:
    """Show what a backup (the newest one by default) holds.

    Example: isthmus backup describe flights
    """
    from isthmus.stores import find_manifest

    store = _store(name, file, data_directory)
    _show(run_connectors(lambda: find_manifest(store, name, backup_id)), as_json)


@app.command()
def validate(
    name: BackupName,
    backup_id: BackupId = None,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
    data_directory: DataDirectory = None,
) -> None:
    """Read a backup (the newest one by default) again and check every checksum and count.

    Example: isthmus backup validate flights
    """
    from connectors.catalogue import validate as check
    from isthmus.stores import find_manifest

    settings = _store(name, file, data_directory)
    manifest = run_connectors(lambda: find_manifest(settings, name, backup_id))
    found = run_connectors(lambda: _with_store(settings, lambda store: check(store, manifest)))
    if as_json:
        print_json({**found.model_dump(), "held_up": _held_up(manifest)})
    else:
        records, size = counted(found.records, "record"), counted(found.bytes, "byte")
        say(f"{found.backup_id}: {counted(found.objects, 'object')}, {records}, {size}")
        for damage in found.damaged:
            say(f"damaged: {damage}")
        if not found.damaged:
            say("complete, every checksum holds")
        _show_held_up(manifest)
    raise typer.Exit(found.exit_code)


def _store(name: str, file: Path, data_directory: Path | None) -> ObjectStoreSettings:
    from topology.settings import store_settings

    topology = open_topology(file, data_directory)
    declared = pick_backup(topology, name)
    return store_settings(topology, open_runtime(topology), declared.store)


async def _with_store(settings: ObjectStoreSettings, work: Any) -> Any:
    from connectors.object_store import open_store

    async with open_store(settings) as store:
        return await work(store)


def _show(manifest: Manifest, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "backup_id": manifest.backup_id,
                "cluster_id": manifest.cluster_id,
                "format": manifest.format,
                "records": manifest.records,
                "bytes": manifest.bytes,
                "objects": len(manifest.objects()),
                "gaps": manifest.gaps,
                "problems": manifest.problems,
                "held_up": _held_up(manifest),
                "topics": {topic.name: topic.records for topic in manifest.topics},
                "groups": [group.group for group in manifest.groups],
            }
        )
        return
    say(f"backup {manifest.backup_id} of cluster {manifest.cluster_id}, {_time(manifest.finished_ms)}")
    print_table(
        ("topic", "partitions", "records", "replication_factor"),
        [
            (topic.name, len(topic.partitions), topic.records, topic.replication_factor)
            for topic in manifest.topics
        ],
    )
    say(f"groups: {', '.join(group.group for group in manifest.groups) or 'none'}")
    _show_held_up(manifest)
    for problem in manifest.problems:
        say(f"problem: {problem}")


def _held_up(manifest: Manifest) -> list[dict[str, Any]]:
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "from_offset": end,
            "offsets": held.offsets,
            "since": shown(held.since_ms),
            "producer_id": held.producer_id,
        }
        for tp, end, held in manifest.held_up()
    ]


def _show_held_up(manifest: Manifest) -> None:
    rows = _held_up(manifest)
    if rows:
        say("held up by open transactions when the backup began; these offsets are not in it:")
        print_table(list(rows[0]), [list(row.values()) for row in rows])


def _time(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))
