"""`isthmus topology plan` and `apply`: how the topics of running clusters differ from the file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from isthmus.output import DIFFERENCES, USAGE, confirm, fail, print_json, say
from isthmus.topologies import access_of, open_topology, unanswered
from protocol.counted import counted

if TYPE_CHECKING:
    from protocol.client import ClusterClient
    from topology.models import Topology
    from topology.topic_plan import Step

T = TypeVar("T")

File = Annotated[Path, typer.Argument(help="topology YAML", show_default=False)]
Only = Annotated[
    str | None, typer.Option("--cluster", "-c", help="alias; all clusters with topics by default")
]
Prune = Annotated[bool, typer.Option("--prune", help="unset settings of topics that the file does not name")]
Json = Annotated[bool, typer.Option("--json", help="for machines")]


def plan(file: File, cluster: Only = None, prune: Prune = False, as_json: Json = False) -> None:
    """Show how the declared topics of running clusters differ from the file, and what apply would do.

    Settings that a move of replicas has set (its throttle) are shown and left alone. Ends with 3 if something
    differs.

    Examples:

      isthmus topology plan examples/stretched-three-sites.yaml

      isthmus topology plan examples/two-datacenters.yaml --cluster east --json
    """
    topology = open_topology(file)
    steps = _plans(topology, file, cluster, prune=prune)
    _show(steps, as_json=as_json)
    if any(_differs(step) for found in steps.values() for step in found):
        raise typer.Exit(DIFFERENCES)


def apply(
    file: File,
    cluster: Only = None,
    prune: Prune = False,
    as_json: Json = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do it without asking")] = False,
) -> None:
    """Make the declared topics of running clusters what the file says: new ones, partitions, settings.

    Nothing is deleted; settings that the file does not name stay, unless --prune is said, and those of a
    running move of replicas stay in any case. Ends with 3 if something differs that cannot be applied.

    Example: isthmus topology apply examples/stretched-three-sites.yaml --yes
    """
    from topology.topic_changes import apply_steps

    topology = open_topology(file)
    steps = _plans(topology, file, cluster, prune=prune)
    changes = {alias: [step for step in found if step.is_change] for alias, found in steps.items()}
    _show(steps, as_json=as_json)
    if any(changes.values()):
        count = sum(map(len, changes.values()))
        confirm(counted(count, "change"), yes=yes)
        for alias, wanted in changes.items():
            declared = topology.clusters[alias].topics
            _with_client(
                topology,
                file,
                alias,
                lambda client: apply_steps(client, declared, wanted),  # noqa: B023
            )
    if any(_differs(step) and not step.is_change for found in steps.values() for step in found):
        raise typer.Exit(DIFFERENCES)


def _plans(topology: Topology, file: Path, only: str | None, *, prune: bool) -> dict[str, list[Step]]:
    """Steps by alias of the cluster."""
    from topology.topic_changes import topics_now
    from topology.topic_plan import plan_topics

    if only is not None and only not in topology.clusters:
        fail(f"there is no cluster '{only}' in {file}: {', '.join(topology.clusters)}", USAGE)
    wanted = [alias for alias, spec in topology.clusters.items() if spec.topics and only in (None, alias)]
    if not wanted:
        fail(f"{file} declares no topics" + (f" of {only}" if only else "") + ": nothing to compare", USAGE)
    plans = {}
    for alias in wanted:
        declared = topology.clusters[alias].topics
        found = _with_client(topology, file, alias, lambda client: topics_now(client, declared))  # noqa: B023
        plans[alias] = plan_topics(declared, found, prune=prune)
    return plans


def _with_client(
    topology: Topology, file: Path, alias: str, work: Callable[[ClusterClient], Awaitable[T]]
) -> T:
    from protocol.errors import ProtocolError

    access = access_of(alias, file)

    async def run() -> T:
        async with access.client("isthmus-cli") as client:
            return await work(client)

    try:
        return asyncio.run(run())
    except ProtocolError as error:
        fail("\nisthmus: ".join([*unanswered(topology, [alias], file), f"{alias}: {error}"]))


def _differs(step: Step) -> bool:
    from topology.topic_plan import Deed

    return step.is_change or step.deed is Deed.IMPOSSIBLE


def _show(plans: dict[str, list[Step]], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "cluster": alias,
                    "deed": str(step.deed),
                    "topic": step.topic,
                    "key": step.key,
                    "now": step.now,
                    "wanted": step.wanted,
                    "change": step.is_change,
                }
                for alias, steps in plans.items()
                for step in steps
            ]
        )
        return
    for alias, steps in plans.items():
        for step in steps:
            say(f"{alias}: {step}")
        if not any(map(_differs, steps)):
            say(f"{alias}: its topics are as declared")
