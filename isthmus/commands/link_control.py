"""`isthmus links pause|resume|restart|set`: what people want of a running link, told through its target."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.links import File, Json, LinkName, link_of, target_only
from isthmus.output import FAILED, USAGE, fail, print_json, say
from isthmus.stores import run_connectors
from isthmus.topologies import DEFAULT_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from replicator.settings import LinkSettings
    from replicator.workers.asking import Asked
    from replicator.workers.control import Scope

Topic = Annotated[
    str | None, typer.Option("--topic", "-t", help="only this source topic, not the whole link")
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="only this one; with --topic")
]
Why = Annotated[str, typer.Option("--why", help="shown in the status", show_default=False)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="say what would happen, and change nothing")]


def pause(
    link: LinkName,
    topic: Topic = None,
    partition: Partition = None,
    why: Why = "",
    dry_run: DryRun = False,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
) -> None:
    """Have a link, a topic or a partition stand still, within about two seconds; also after restarts.

    What is on its way arrives first. Lag grows meanwhile, and retention at the source does not wait: what it
    removes becomes a gap. Groups, topic settings and ACLs go on. Works whether workers run or not.

    Examples:

    isthmus links pause 'east->west' --why 'maintenance of west until noon'

    isthmus links pause 'east->west' --topic orders --partition 3
    """
    from replicator.workers import asking

    wish = asking.wish(why)
    _do(link, file, topic, partition, as_json, lambda s, scope: asking.pause(s, scope, wish, dry_run=dry_run))


def resume(
    link: LinkName,
    topic: Topic = None,
    partition: Partition = None,
    dry_run: DryRun = False,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
) -> None:
    """Have it go on where it stopped: the scope that you name, and everything paused in it.

    Example: isthmus links resume 'east->west' --topic orders
    """
    from replicator.workers import asking

    _do(link, file, topic, partition, as_json, lambda s, scope: asking.resume(s, scope, dry_run=dry_run))


def restart(
    link: LinkName,
    topic: Topic = None,
    partition: Partition = None,
    why: Why = "",
    dry_run: DryRun = False,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
) -> None:
    """Have partitions begin anew from their progress, without ending a process.

    For one that waits for a refused batch after its cause is mended: it need not wait for its next try.
    Nothing is copied twice. Done once, by the workers that run now.

    Example: isthmus links restart 'east->west' --topic orders --partition 3
    """
    from replicator.workers import asking

    wish = asking.wish(why)
    _do(
        link,
        file,
        topic,
        partition,
        as_json,
        lambda s, scope: asking.restart(s, scope, wish, dry_run=dry_run),
    )


def set_settings(
    link: LinkName,
    values: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="several", show_default=False)
    ] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", help="as in the file again")] = None,
    dry_run: DryRun = False,
    file: File = DEFAULT_FILE,
    as_json: Json = False,
) -> None:
    """Change settings of a link while it runs; they hold before its file, also after restarts, until unset.

    What can be changed so: topics, topics_exclude, groups, groups_exclude, rate_limit (bytes per second of
    all workers together, 0: none), all intervals, progress_bytes, retry_refused_s. Others are changed in the
    file, then restart the workers. Topics that a new filter leaves out stop; their copies stay as they are.

    A list takes the place of the whole one before it. So topics_exclude and groups_exclude lose the patterns
    that a topology's file adds to (__.*, console-consumer-.* and so on), as MirrorMaker 2's do when they are
    set: name those again that shall stay. What is dropped is said, also with --dry-run. Internal topics
    (__…, ….internal, …-internal) are never copied, whatever the list says.

    Examples:

    isthmus links set 'east->west' rate_limit=20000000

    isthmus links set 'east->west' topics='orders.*,payments' --unset rate_limit

    isthmus links set 'east->west' groups_exclude='console-consumer-.*,connect-.*,__.*,batch-.*' --dry-run
    """
    from replicator.workers import asking

    given: dict[str, Any] = {}
    for one in values or ():
        name, equals, value = one.partition("=")
        if not equals or not name:
            fail(f"{one!r} is not of the form NAME=VALUE", USAGE)
        given[name.strip()] = value.strip()
    if not given and not unset:
        fail("say NAME=VALUE, or --unset NAME", USAGE)
    _do(
        link,
        file,
        None,
        None,
        as_json,
        lambda s, _: asking.set_values(s, given, unset=tuple(unset or ()), dry_run=dry_run),
    )


def _do(
    link: str,
    file: Path,
    topic: str | None,
    partition: int | None,
    as_json: bool,
    ask: Callable[[LinkSettings, Scope], Coroutine[Any, Any, Asked]],
) -> None:
    from replicator.workers.asking import NotAsked, WronglyAsked
    from replicator.workers.control import Scope

    if partition is not None and topic is None:
        fail("--partition needs --topic", USAGE)
    settings, asked = link_of(link, file)
    try:
        done = run_connectors(lambda: ask(settings, Scope(topic, partition)), target_only(asked))
    except NotAsked as error:
        fail(str(error), USAGE if isinstance(error, WronglyAsked) else FAILED)
    if as_json:
        print_json({"link": link, **done.to_json()})
        return
    say(done.text if done.done else f"would do: {done.text}")
    if topic is not None and not done.partitions:
        say("note: nothing of it has been copied yet; it holds for what comes")
