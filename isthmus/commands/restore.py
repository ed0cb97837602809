"""`isthmus restore NAME --to CLUSTER`: put a backup into a cluster that does not have its topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from isthmus.commands.topics import pairs
from isthmus.output import USAGE, fail, print_json, print_table, say
from isthmus.progress import ProgressDisplay
from isthmus.stores import Asked, BackupId, BackupName, find_manifest, pick_backup, run_connectors
from isthmus.topologies import DEFAULT_FILE, DataDirectory, open_runtime, open_topology

if TYPE_CHECKING:
    from connectors.restore_report import RestoreReport


def restore(
    name: BackupName,
    to: Annotated[str, typer.Option("--to", help="cluster alias of the topology", show_default=False)],
    backup_id: BackupId = None,
    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="only these topics")] = None,
    rename: Annotated[list[str] | None, typer.Option(help="old=new topic name, repeatable")] = None,
    prefix: Annotated[str, typer.Option(help="put before every restored topic's name")] = "",
    file: Annotated[Path, typer.Option("--topology", "-f", help="topology YAML")] = DEFAULT_FILE,
    as_json: Annotated[bool, typer.Option("--json", help="for machines")] = False,
    data_directory: DataDirectory = None,
) -> None:
    """Restore topics, settings and group offsets; what was written is read back and counted.

    Topics that exist and hold records are never touched. The same command after an interruption goes on
    where it stopped. Ends with 3 when something differs from the backup, each difference named.

    Example: isthmus restore flights --to restore
    """
    from connectors.restore import restore as run
    from replicator.wrong_values import in_words
    from topology.settings import restore_settings, store_settings

    topology = open_topology(file, data_directory)
    declared = pick_backup(topology, name)
    if to not in topology.clusters:
        fail(f"there is no cluster '{to}' in {file}: {', '.join(topology.clusters)}", USAGE)
    runtime = open_runtime(topology)
    store = store_settings(topology, runtime, declared.store)
    manifest = run_connectors(lambda: find_manifest(store, name, backup_id))
    renamed = pairs(rename or [])
    try:
        settings = restore_settings(
            topology,
            runtime,
            name,
            manifest.backup_id,
            to,
            topics=topic or (),
            rename=renamed,
            prefix=prefix,
        )
    except ValidationError as error:
        fail("; ".join(in_words([problem]) for problem in error.errors()), USAGE)
    with ProgressDisplay() as show:
        report = run_connectors(
            lambda: run(settings, lambda progress: show(progress.phase, progress.done, progress.total)),
            Asked(topology, (to,), file),
        )
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        _show(report)
    raise typer.Exit(report.exit_code)


def _show(report: RestoreReport) -> None:
    say(f"backup {report.backup_id} restored into cluster {report.target_cluster_id}")
    print_table(
        ("topic", "restored as", "partitions", "records", "read back"),
        [
            (
                topic.source,
                topic.target,
                len(topic.partitions),
                topic.records,
                sum(partition.read_back for partition in topic.partitions),
            )
            for topic in report.topics
        ],
    )
    for group in report.groups:
        say(f"group {group.group}: {group.status}")
    for text in report.warnings:
        say(f"warning: {text}")
    for text in report.problems:
        say(f"difference: {text}")
