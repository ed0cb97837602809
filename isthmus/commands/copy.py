"""`isthmus copy --from A --to B --topics …`: copy topics between two clusters, without any file."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.addresses import told
from isthmus.links import patterns
from isthmus.output import DIFFERENCES, USAGE, fail, note, print_json, print_table, say
from protocol.counted import counted

if TYPE_CHECKING:
    from replicator.copy_watch import CopyProgress, CopyResult
    from replicator.copying import CopyPlan, CopyRequest, CopyTopic


def copy(
    source: Annotated[
        str | None, typer.Option("--from", help="host:port,… or a cluster of --topology", show_default=False)
    ] = None,
    target: Annotated[
        str | None, typer.Option("--to", help="host:port,… or a cluster of --topology", show_default=False)
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topics", "-t", help="regular expressions for whole names, with commas"),
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option("--exclude", help="the same, to leave out")] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option("--rename", help=r"old=new, or 'orders\.(.*)=archive.\1'; several times"),
    ] = None,
    until_now: Annotated[
        bool, typer.Option("--until-now", help="end once everything is copied that is there at the start")
    ] = False,
    start: Annotated[str, typer.Option(help="earliest or latest: where a first copy begins")] = "earliest",
    name: Annotated[str, typer.Option(help="of the copy's progress; default: the source's cluster id")] = "",
    replication_factor: Annotated[
        int, typer.Option(help="of topics that are made; -1: the target's default", min=-1)
    ] = -1,
    from_config: Annotated[
        Path | None, typer.Option(help="client.properties with security settings for --from")
    ] = None,
    to_config: Annotated[
        Path | None, typer.Option(help="client.properties with security settings for --to")
    ] = None,
    topology: Annotated[
        Path | None, typer.Option("--topology", "-f", help="YAML where names of clusters are found")
    ] = None,
    append: Annotated[
        bool, typer.Option("--append", help="also into topics that hold records already, behind those")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="show what would be copied, and do nothing")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="the result for machines")] = False,
) -> None:
    """Copy topics from one cluster to another, once or for ever; the same command again goes on.

    Records keep their partitions, order, keys, headers, times and compression. Topics that are missing at the
    target are made with the source's partitions and settings; one that holds records of something else is
    refused without --append. Both hold for topics that appear while it runs, too. Progress is kept in the
    target cluster: a copy that was stopped or killed goes on where it was and writes nothing twice. Groups
    and ACLs are not copied: that is a link's work (isthmus replicate).

    Exit codes: 0 all copied (without --until-now: stopped, without gaps, and nothing stood still), 1 failed,
    or stopped before it had arrived, 2 wrong usage, 3 ended, but something could not be copied (it is named).

    Examples:

    isthmus copy --from old:9092 --to new:9092 --topics 'orders.*' --until-now

    isthmus copy --from a:9092 --to b:9093 --to-config b.properties --topics orders --rename orders=old

    isthmus copy --from east --to west --topology examples/two-datacenters.yaml --topics '.*' --dry-run
    """
    import uvloop

    request = _request(
        (source, from_config, "--from"),
        (target, to_config, "--to"),
        topology,
        topics=patterns(topics, "--topics"),
        exclude=patterns(exclude, "--exclude"),
        rename=_rules(rename),
        start=start,
        until_now=until_now,
        append=append,
        name=name,
        replication_factor=replication_factor,
    )
    raise typer.Exit(uvloop.run(_copy(request, dry_run=dry_run, as_json=as_json)))


def _request(
    source: tuple[str | None, Path | None, str],
    target: tuple[str | None, Path | None, str],
    topology: Path | None,
    **said: Any,
) -> CopyRequest:
    from replicator.copying import CopyRequest

    if not said["topics"]:
        fail("say what to copy, for example --topics 'orders.*'", USAGE)
    if said["start"] not in ("earliest", "latest"):
        fail(f"--start is earliest or latest, not '{said['start']}'", USAGE)
    if not re.fullmatch(r"[A-Za-z0-9_-]*", said["name"]):
        fail(f"--name may hold letters, digits, '-' and '_' only, not '{said['name']}'", USAGE)
    (here, here_properties), (there, there_properties) = (told(*one, topology) for one in (source, target))
    return CopyRequest(
        here, there, source_properties=here_properties, target_properties=there_properties, **said
    )


def _rules(texts: list[str] | None) -> tuple[Any, ...]:
    from replicator.renaming import Rename

    try:
        return tuple(Rename.parse(text) for text in texts or ())
    except ValueError as error:
        fail(f"--rename: {error}", USAGE)


async def _copy(request: CopyRequest, *, dry_run: bool, as_json: bool) -> int:
    from isthmus.logs import log_to_stderr
    from protocol.errors import ProtocolError
    from replicator.copying import CopyError, plan_copy, refuse_strange, run_copy

    try:
        plan = await plan_copy(request)
        if not dry_run:
            refuse_strange(plan)
    except CopyError as error:
        fail(str(error), USAGE)
    except (ProtocolError, ValueError) as error:
        fail(f"{error}; nothing was copied")
    for one in plan.idle:
        note(f"so far {one}")
    if dry_run:
        _show_plan(plan, as_json=as_json)
        return 0
    log_to_stderr()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    partitions = sum(topic.partitions for topic in plan.topics)
    where = plan.settings.progress_topic
    note(
        f"copying {counted(len(plan.topics), 'topic')} ({counted(partitions, 'partition')});"
        f" progress is in {where}"
    )
    with _Display() as show:
        result = await run_copy(plan, stop, until_now=request.until_now, show=show)
    _show_result(plan, result, until_now=request.until_now, as_json=as_json)
    return result.code


def _show_plan(plan: CopyPlan, *, as_json: bool) -> None:
    if as_json:
        print_json(plan.to_json())
        return
    print_table(
        ("topic", "at target", "partitions", "offsets", "topic at target"),
        [
            (
                one.topic,
                one.at_target,
                one.partitions,
                one.offsets,
                _there(one),
            )
            for one in plan.topics
        ],
    )
    for tp, reason in sorted(plan.silent.items()):
        say(f"not known: {tp}: {reason}")
    for topic, progress in sorted(plan.back.items()):
        say(f"would go round: {topic} is filled from where it would be copied to ({progress})")
    for topic, reason in sorted(plan.not_copied.items()):
        say(f"not copied: {topic}: {reason}")


def _there(topic: CopyTopic) -> str:
    if topic.records_there:
        return f"holds {topic.records_there:,} others: needs --append"
    return "is there" if topic.exists else "will be made"


def _show_result(plan: CopyPlan, result: CopyResult, *, until_now: bool, as_json: bool) -> None:
    done = result.progress
    if as_json:
        print_json(
            {
                "exit_code": result.code,
                "arrived": result.arrived,
                "records": done.records,
                "bytes": done.bytes,
                "seconds": round(done.seconds, 3),
                "left": result.left,
                "gaps": result.gaps,
                "link": plan.settings.name,
                "progress_topic": plan.settings.progress_topic,
            }
        )
        return
    say(f"copied {counted(done.records, 'record', ',')}, {done.bytes / 1e6:,.1f} MB in {done.seconds:.1f} s")
    for partition, reason in sorted(result.left.items()):
        say(f"not copied: {partition}: {reason}")
    for partition, gaps in sorted(result.gaps.items()):
        say(f"gap: {partition}: {', '.join(gaps)}")
    if result.gaps:
        name, to = plan.settings.name, plan.settings.target.bootstrap
        say(f"if that is known: isthmus links acknowledge-gap '{name}' --to {to} --all --why ...")
    if result.failed:
        say("the copy failed, the log above says why; the same command goes on where it was")
    elif until_now and not result.arrived:
        say("stopped before everything was copied; the same command goes on from here")
    elif result.code == DIFFERENCES:
        say("some records could not be copied: they are named above")


class _Display:
    """A line that is written anew on a terminal; elsewhere one every few seconds."""

    def __init__(self) -> None:
        from isthmus.progress import ProgressDisplay

        self._bars = ProgressDisplay()

    def __call__(self, progress: CopyProgress) -> None:
        self._bars.say(_line(progress), progress.offsets, progress.total)

    def __enter__(self) -> _Display:
        self._bars.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._bars.__exit__(*failure)


def _line(progress: CopyProgress) -> str:
    left = progress.seconds_left
    share = f" ({100 * progress.offsets // progress.total} %)" if progress.total else ""
    speed = f"{progress.bytes_per_second / 1e6:.1f} MB/s"
    rest = f", {_duration(left)} left" if left is not None else ""
    return f"copied {counted(progress.records, 'record', ',')}{share}, {speed}{rest}"


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return (
        f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"
    )
