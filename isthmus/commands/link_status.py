"""`isthmus links status`: how a link stands, as its workers and its progress at the target tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.commands.link_gaps import noted
from isthmus.links import File, Json, LinkName, link_of, target_only
from isthmus.output import DIFFERENCES, USAGE, fail, note, print_json, print_table, say
from isthmus.stores import run_connectors
from isthmus.topologies import DEFAULT_FILE, unanswered
from protocol.counted import counted

if TYPE_CHECKING:
    from replicator.link_report import LinkReport

_NAMED = 20
"""Groups that are not in sync."""


def status(
    link: LinkName,
    file: File = DEFAULT_FILE,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="only this source topic")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="only this partition of --topic", min=0)
    ] = None,
    partitions: Annotated[
        bool, typer.Option("--partitions", help="how late records are of each partition too")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show whether the link copies, and if not why; per partition what was copied, what is left, which worker
    has it, and every gap; which groups are not in sync at the target, and why; and all workers.

    Workers tell every few seconds how they stand; what none of them says anything about has no worker.
    A source that does not answer is waited for four seconds: what it has said until then counts, and of the
    rest the lag is what the worker last knew.
    Ends with 3 when there are gaps that nobody has acknowledged (isthmus links acknowledge-gap), or records
    that are gone from the source before a partition that stands still could copy them.

    Of links with identical offsets too; what a failover would lose is shown by isthmus mirrors status.

    How late records are is from their own timestamps to the acknowledgement at the target, in the last one to
    two minutes (the greatest, and what 50 % and 99 % of the records did not exceed).

    Examples:

      isthmus links status 'east->west'

      isthmus links status 'east->west' --partitions --topology links.yaml

      isthmus links status 'east->west' --topic orders --partition 3
    """
    from replicator.link_report import only
    from replicator.mirrors.report import report_of

    if partition is not None and topic is None:
        fail("--partition says which one of --topic T", USAGE)

    settings, asked = link_of(link, file, mirrors=None)
    report = run_connectors(lambda: report_of(settings), target_only(asked))
    if topic is not None:
        report = only(report, topic, partition)
        if not report.rows:
            fail(f"nothing of {topic if partition is None else f'{topic}-{partition}'} was copied by {link}")
    if report.source_problem:
        silent = unanswered(asked.topology, asked.clusters[:1], file) if asked is not None else []
        note(f"lag is not known: {(silent or [report.source_problem])[0]}")
    if as_json:
        print_json(
            {
                "link": link,
                "standing": report.standing,
                "partitions": report.rows,
                "differences": report.differences,
                "source_problem": report.source_problem,
                "workers": report.workers,
                "settings_changed": report.settings,
                "mirrors": report.mirrors,
                "groups": report.groups,
                "latencies": report.latencies,
            }
        )
    else:
        _show_standing(report)
        if report.rows:
            _show(report.rows)
            _show_left_out(report.rows)
        _show_latencies(report, partitions=partitions)
        _show_mirrors(report.mirrors)
        _show_groups(report.groups)
        _show_workers(report)
    if report.differences or any(row["lost"] for row in report.rows):
        raise typer.Exit(DIFFERENCES)


def _show_standing(report: LinkReport) -> None:
    from replicator.link_standing import in_words

    lives = [one for one in report.workers if not one["silent"]]
    by = max(lives, key=lambda one: one["at_ms"], default=None)
    for line in in_words(report.standing, _when(report.standing["since_ms"], by)):
        say(line)


def _when(ms: int | None, by: dict[str, Any] | None) -> str:
    """And for how long, by the clock of a worker that has just spoken: that of who asks may be another."""
    if not ms:
        return ""
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ms / 1000))
    return at if by is None or by["silent"] else f"{at} ({max(by['at_ms'] - ms, 0) / 1000:.0f} s)"


def _show(rows: list[dict[str, Any]]) -> None:
    columns = ("topic", "partition", "at_target", "copied", "lag", "runs", "state", "lane", "worker")
    print_table(columns, [[_lag(row) if c == "lag" else row[c] for c in columns] for row in rows])
    for row in rows:
        where = f"{row['topic']}-{row['partition']}"
        for start, end, reason in row["gaps"]:
            say(f"gap: {where} source offsets {start} to {end}: {reason}{noted(row, 'gap', start, end)}")
        if row["lost"]:
            say(
                f"lost: {where} source offsets {row['lost'][0]} to {row['lost'][1]} are gone from the source"
                " and were not copied: they go on record as a gap when the partition goes on"
            )
        if row["drops"]:
            say(
                f"drops: {where} the mirror drops its {counted(row['drops'], 'record')} before that gap when"
                " it goes on: the source has none of them any more"
            )
        for start, end, reason in row["superseded"]:
            at = f"{row['at_target']}-{row['partition']}"
            known = noted(row, "superseded", start, end)
            say(f"superseded: {at} offsets {start} to {end}: {reason}{known}")
        if row["left_out"]:
            say(
                f"left out: {where} {counted(row['left_out'], 'record')} that have been at the target"
                " (origin_headers)"
            )
        for text in row["notes"]:
            say(f"note: {where} {text}")
        if row["paused"]:
            say(f"paused: {where} {row['paused']}")
        elif row["at_worker"] not in (None, "running"):
            say(f"{row['at_worker']}: {where} {row['reason']}")


def _show_left_out(rows: list[dict[str, Any]]) -> None:
    for topic, reason in {row["topic"]: row["reason"] for row in rows if row["worker"] is None}.items():
        if reason:
            say(f"not copied any more: {topic}: {reason}")


def _lag(row: dict[str, Any]) -> int | str | None:
    """Where the source does not say, what the partition's worker last knew."""
    known: int | None = row["lag"]
    last = row["lag_at_worker"]
    return f"{last} (last known)" if known is None and last is not None else known


def _show_latencies(report: LinkReport, *, partitions: bool) -> None:
    """In milliseconds."""
    shares = ("p50", "p99", "max")
    topics = [
        [topic, *(_ms(found[share]) for share in shares), found["records"]]
        for topic, found in report.latencies.items()
    ]
    if topics:
        print_table(("topic", "p50 ms", "p99 ms", "max ms", "records lately"), topics)
    if partitions:
        rows = [
            [row["topic"], row["partition"], *(_ms((row["latency"] or {}).get(share)) for share in shares)]
            for row in report.rows
        ]
        print_table(("topic", "partition", "p50 ms", "p99 ms", "max ms"), rows)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)


def _show_mirrors(mirrors: dict[str, Any]) -> None:
    for topic, mirror in mirrors.items():
        say(f"mirror: {topic} is copied into {mirror['current']} now")
        for one in mirror["former"]:
            when = _when(one["at_ms"], None)
            say(f"former mirror: {topic} was copied into {one['at_target']} until {when}: {one['why']}")


def _show_groups(groups: dict[str, Any]) -> None:
    """Those that are in sync are counted, of the others some are named."""
    if not groups:
        return
    say(f"groups: {groups['in_sync']} in sync at the target, {groups['not_in_sync']} not")
    named = list(groups["reasons"].items())[:_NAMED]
    for group, reason in named:
        say(f"group: {group}: {reason}")
    if groups["not_in_sync"] > len(named):
        say(f"and {groups['not_in_sync'] - len(named)} more (--json names up to a hundred)")


def _show_workers(report: LinkReport) -> None:
    for one in report.workers:
        lead = ", leads" if one["leads"] else ""
        silent = ", silent" if one["silent"] else ""
        rest = f", {one['rest']}" if one["rest"] else ""
        has = f"{counted(one['partitions'], 'partition')}, {one['rate']} bytes/s"
        waits = f", {one['standing']['state']}" if one["standing"].get("waits_for") else ""
        say(f"worker: {one['worker']}: {has}{lead}{waits}{silent}{rest}{_delivery(one['guarantee'])}")
        for what, problem in one["problems"].items():
            when = _when(one["problems_since"].get(what), one)
            say(f"problem: {one['worker']}: {what}: {problem}{f' (since {when})' if when else ''}")
    for name, value in report.settings.items():
        say(f"setting: {name} = {value} (changed by command: isthmus links set)")


def _delivery(guarantee: dict[str, Any]) -> str:
    if guarantee.get("delivery") != "exactly once":
        return ""
    age, aborted = guarantee["last_commit_age_s"], guarantee["aborted"]
    last = "nothing committed yet" if age is None else f"last commit {age:.1f} s before it said so"
    why = f", the last: {guarantee['last_abort']}" if guarantee["last_abort"] else ""
    counts = f"{counted(guarantee['committed'], 'commit')}, {counted(aborted, 'abort')}"
    return f", exactly once ({last}, {counts}{why})"
