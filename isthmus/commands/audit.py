"""`isthmus audit`: prove on Spark that two copies of topics hold the same records."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.output import USAGE, fail, print_json, print_table, say
from isthmus.stores import Asked, BackupId, find_manifest, pick_backup, run_connectors
from isthmus.topologies import DEFAULT_FILE, DataDirectory, open_runtime, open_topology, unanswered

if TYPE_CHECKING:
    from audit.result import AuditResult, Counts
    from audit.settings import AuditSettings
    from replicator.settings import LinkSettings
    from topology.models import Topology


_ALWAYS = ("compared", "lost", "duplicate", "corrupt", "reordered")
_IF_ANY = ("misaligned", "foreign", "divergent", "compacted")
_APART = {
    "expired_source": "{} records that the source has dropped since",
    "expired_target": "{} records that the target has dropped since",
    "pending_source": "{} offsets at the source that are not copied yet",
    "left_out": "{} records that are not this link's to copy, or not copies of it",
    "pending_target": "{} offsets at the target behind what is on record",
}


def audit(
    topic: Annotated[list[str], typer.Option("--topic", "-t", help="as the source calls it, repeatable")],
    link: Annotated[str | None, typer.Option("--link", help="compare a link's source and target")] = None,
    backup: Annotated[str | None, typer.Option("--backup", help="compare a backup … (with --to)")] = None,
    backup_id: BackupId = None,
    to: Annotated[str | None, typer.Option("--to", help="… with the cluster it was restored into")] = None,
    by_content: Annotated[
        bool, typer.Option("--by-content", help="without a link's ledger, e.g. after MirrorMaker 2")
    ] = False,
    tolerate: Annotated[
        list[str] | None, typer.Option(help="count this class but do not fail for it, e.g. duplicate")
    ] = None,
    file: Annotated[Path, typer.Option("--topology", "-f", help="topology YAML")] = DEFAULT_FILE,
    as_json: Annotated[bool, typer.Option("--json", help="for machines")] = False,
    data_directory: DataDirectory = None,
) -> None:
    """Compare every record of both sides: lost, duplicate, corrupt, reordered.

    Ends with 0 when clean, 3 when there are differences, 1 when a side could not be read to its end.

    Example: isthmus audit --link 'east->west' --topic flights
    """
    from audit.errors import AuditError
    from audit.result import DifferenceClass
    from audit.session import need_spark
    from topology.runtime import NotRunning

    try:
        need_spark()
    except AuditError as error:
        fail(str(error))
    from audit.run import run_audit

    known = [kind.value for kind in DifferenceClass]
    if unknown := sorted(set(tolerate or ()).difference(known)):
        fail(f"--tolerate {unknown[0]}: the classes are {', '.join(known)}", USAGE)
    topology = open_topology(file, data_directory)
    if (link is None) == (backup is None):
        fail("say what to compare: --link A->B, or --backup NAME --to CLUSTER", USAGE)
    try:
        if link is not None:
            settings = _link_audit(topology, link, topic, by_content)
        else:
            settings = _backup_audit(topology, file, str(backup), backup_id, to, topic)
        result = run_audit(settings.model_copy(update={"tolerate": tuple(tolerate or ())}))
    except (AuditError, NotRunning) as error:
        clusters = topology.link_ends(link) if link is not None else [str(to)]
        fail("\nisthmus: ".join([*unanswered(topology, clusters, file), str(error)]))
    if as_json:
        print_json({**result.totals.model_dump(), **json.loads(result.to_json())})
    else:
        _show(result)
    raise typer.Exit(result.exit_code)


def _link_audit(topology: Topology, link: str, topics: list[str], by_content: bool) -> AuditSettings:
    from topology.settings import link_audit_settings, link_settings

    if link not in topology.links:
        known = ", ".join(topology.links) or "none"
        fail(f"there is no link '{link}' in {topology.name}: {known}", USAGE)
    runtime = open_runtime(topology)
    mirrors = asyncio.run(_mirrors(link_settings(topology, runtime, link)))
    return link_audit_settings(topology, runtime, link, topics, by_content=by_content, mirrors=mirrors)


async def _mirrors(settings: LinkSettings) -> dict[str, str]:
    """Mirrors of topics that were created again, which have other names than the first."""
    from protocol.errors import ProtocolError
    from replicator.drift import mirrors_now

    if settings.on_recreated != "new_mirror":
        return {}
    try:
        async with settings.target.at_once() as target:
            return await mirrors_now(target, settings)
    except ProtocolError as error:
        fail(f"{settings.target.alias}: {error}")


def _backup_audit(
    topology: Topology,
    file: Path,
    name: str,
    backup_id: str | None,
    cluster: str | None,
    topics: list[str],
) -> AuditSettings:
    from topology.settings import restore_audit_settings, store_settings

    declared = pick_backup(topology, name)
    if cluster not in topology.clusters:
        fail(f"say with --to which cluster it was restored into: {', '.join(topology.clusters)}", USAGE)
    runtime = open_runtime(topology)
    store = store_settings(topology, runtime, declared.store)
    found = run_connectors(lambda: find_manifest(store, name, backup_id)).backup_id
    return run_connectors(
        lambda: restore_audit_settings(topology, runtime, store, found, cluster, topics),
        Asked(topology, (cluster,), file),
    )


def _show(result: AuditResult) -> None:
    say(f"{result.source} against {result.target}, aligned by {result.alignment}")
    totals = result.totals.model_dump()
    counts = [*_ALWAYS, *(name for name in _IF_ANY if totals[name])]
    rows = [
        (
            f"{part.source_topic} → {part.target_topic}",
            part.partition,
            *(getattr(part.counts, name) if part.complete else None for name in counts),
        )
        for part in result.partitions
    ]
    print_table(("topic", "partition", *counts), [*rows, ("all", None, *(totals[name] for name in counts))])
    _show_gaps(result.totals)
    if apart := ", ".join(text.format(totals[name]) for name, text in _APART.items() if totals[name]):
        say(f"not compared: {apart}")
    for difference in result.differences:
        say(
            f"{difference.kind}: {difference.source_topic}-{difference.partition} offset "
            f"{difference.source_offset}, {difference.target_topic} offset {difference.target_offset}"
        )
    for text in (*result.incomplete, *(f"topic missing: {name}" for name in result.missing_topics)):
        say(text)
    for text in result.notes:
        say(f"note: {text}")
    clean = "clean, as far as it was compared" if apart else "clean"
    say("incomplete" if result.incomplete else clean if result.clean else "not the same")


def _show_gaps(totals: Counts) -> None:
    if totals.gap_offsets or totals.gap_expired:
        now, expired = totals.gap_offsets, totals.gap_expired
        say(f"gaps on record: {now} source offsets, and {expired} more that the source has lost since")
    if totals.gaps_unknown:
        say(f"gaps on record of which nobody knows how much they are: {totals.gaps_unknown}")
