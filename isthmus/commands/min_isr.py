"""`isthmus configs min-isr …`: write again while a site is lost, and take that back."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from isthmus.kafka_admin import Cluster, TopologyFile, Yes
from isthmus.output import DIFFERENCES, USAGE, confirm, fail, note, say
from isthmus.topologies import access_of, named_outage
from protocol.client import ClusterClient
from protocol.counted import counted

T = TypeVar("T")

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Lower min.insync.replicas of all topics while a site is lost; restore it afterwards.",
)
Undo = Annotated[Path, typer.Option(help="file that keeps what was there before")]
_UNDO = Path("min-isr-undo.json")


@app.command()
def lower(
    cluster: Cluster,
    to: Annotated[int, typer.Option("--to", help="replicas that have to be in sync", min=1)],
    undo: Undo = _UNDO,
    file: TopologyFile = None,
    yes: Yes = False,
) -> None:
    """Let acks=all writes pass again after the loss of a site: min.insync.replicas of every topic that wants
    more goes down to --to.

    What was there is kept in the undo file, for isthmus configs min-isr restore. While it is lowered, a
    record may be acknowledged with fewer copies than you asked for. Asks first; without a terminal say --yes.

    Example: isthmus configs min-isr lower --to 2 --cluster main --yes
    """
    from topology.min_isr import lower as do_lower
    from topology.min_isr import plan_lowering

    changes = _with_client(cluster, file, lambda client: plan_lowering(client, to))
    if not changes:
        say(f"nothing to do: no topic wants more than {counted(to, 'replica')} in sync")
        return
    lines = [f"  {change.topic}: {change.before} -> {change.after}" for change in changes]
    confirm("\n".join([f"min.insync.replicas of {counted(len(changes), 'topic')}:", *lines]), yes=yes)
    _with_client(cluster, file, lambda client: do_lower(client, changes, undo))
    where = "" if file is None else f" -f {shlex.quote(str(file))}"
    back = f"isthmus configs min-isr restore --cluster {cluster}{where} --undo {shlex.quote(str(undo))}"
    say(f"{counted(len(changes), 'topic')} lowered to {to}; take it back with: {back}")


@app.command()
def restore(
    cluster: Cluster,
    undo: Undo = _UNDO,
    force: Annotated[
        bool, typer.Option("--force", help="even if partitions will refuse acks=all writes then")
    ] = False,
    file: TopologyFile = None,
    yes: Yes = False,
) -> None:
    """Take isthmus configs min-isr lower back, once the lost site is home and its replicas are in sync.

    Ends with 3, and changes nothing, while partitions have fewer replicas in sync than they would need.

    Example: isthmus configs min-isr restore --cluster main --yes
    """
    from topology.min_isr import plan_restoring
    from topology.min_isr import restore as do_restore

    changes, short = _with_client(cluster, file, lambda client: plan_restoring(client, undo))
    for item in short[:10]:
        note(f"{item.topic}-{item.partition}: {item.in_sync} in sync, {item.wanted} would be needed")
    if short and not force:
        note(
            f"nothing done: {counted(len(short), 'partition')} would refuse acks=all writes: wait, or say"
            " --force"
        )
        raise typer.Exit(DIFFERENCES)
    lines = [f"  {change.topic}: {change.after} -> {change.before}" for change in changes]
    confirm("\n".join([f"min.insync.replicas of {counted(len(changes), 'topic')}:", *lines]), yes=yes)
    _with_client(cluster, file, lambda client: do_restore(client, changes, undo))
    say(f"{len(changes)} topics are as before")


def _with_client(cluster: str, file: Path | None, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
    from protocol.errors import ProtocolError
    from topology.min_isr import UndoFileError

    async def run() -> T:
        async with access_of(cluster, file).client("isthmus-cli") as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except UndoFileError as error:
        fail(str(error), USAGE)
    except ProtocolError as error:
        fail(named_outage(cluster, file) or str(error))
