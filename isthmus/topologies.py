"""What the commands that work on a topology share: open the file, find what runs, fail clearly."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from isthmus.output import USAGE, fail, say
from topology.control import ControlError, NoSuchPart, request
from topology.load import load_topology
from topology.models import Topology
from topology.outages import outages
from topology.problems import TopologyError
from topology.runtime import DirectoryUnusable, NotRunning, Runtime

if TYPE_CHECKING:
    from protocol.client.access import Access

T = TypeVar("T")
DEFAULT_FILE = Path("examples/two-datacenters.yaml")
DataDirectory = Annotated[
    Path | None, typer.Option("--data-directory", help="instead of the file's own", show_default=False)
]


def open_topology(file: Path, data_directory: Path | None = None) -> Topology:
    """The valid topology of `file`, or the end of the command with all its mistakes shown."""
    try:
        topology = load_topology(file)
    except TopologyError as error:
        if _of_mirrormaker(file):
            fail(
                f"{file} is a file of MirrorMaker 2: isthmus replicate and isthmus links take it as it is;"
                " this one wants a topology (YAML), or no file and clusters as host:port",
                USAGE,
            )
        default = " (the file where none is named: name yours)" if file == DEFAULT_FILE else ""
        fail(f"{error}{default if not file.exists() else ''}", USAGE)
    if data_directory is None:
        return topology
    return topology.model_copy(update={"data_directory": data_directory.resolve()})


def _of_mirrormaker(file: Path) -> bool:
    from replicator.mirrormaker.forms import says_mirrormaker

    try:
        return says_mirrormaker(file)
    except OSError:
        return False


def open_runtime(topology: Topology) -> Runtime:
    try:
        return Runtime.load(topology.data_directory)
    except DirectoryUnusable as error:
        fail(str(error))


def run_control(work: Coroutine[Any, Any, T], file: Path) -> T:
    """Run a request to the supervisor and turn its failures into one clear line; `file` is the topology's."""
    try:
        return asyncio.run(work)
    except NoSuchPart as error:
        fail(str(error), USAGE)
    except (NotRunning, ControlError) as error:
        fail(str(error).replace("isthmus up FILE", f"isthmus up {file}"))


def access_of(cluster: str, file: Path | None) -> Access:
    """`host:port,…` as given, or where a cluster alias of the topology `file` is and how to be let in.

    `main@paris` means the cluster as clients in that datacenter reach it, over the simulated links.
    """
    from protocol.client.access import Access
    from protocol.client.routing import parse_bootstrap

    if ":" in cluster:
        try:
            parse_bootstrap(cluster)
        except ValueError as error:
            fail(str(error), USAGE)
        return Access(cluster)
    topology = open_topology(file or DEFAULT_FILE)
    cluster, _, site = cluster.partition("@")
    if site and site not in topology.datacenters:
        fail(
            f"there is no datacenter '{site}' in {file or DEFAULT_FILE}: {', '.join(topology.datacenters)}",
            USAGE,
        )
    if cluster not in topology.clusters:
        fail(
            f"there is no cluster '{cluster}' in {file or DEFAULT_FILE}: {', '.join(topology.clusters)}; "
            "host:port works too",
            USAGE,
        )
    try:
        return open_runtime(topology).access(topology, cluster, site or None)
    except NotRunning as error:
        fail(str(error))


def unanswered(topology: Topology, clusters: Collection[str], file: Path) -> list[str]:
    """A line for each of the clusters that accepts no connection now: where it is, why, what to do."""
    return asyncio.run(outages(topology, open_runtime(topology), clusters, str(file)))


def named_outage(cluster: str, file: Path | None) -> str:
    """Why the cluster of this alias does not answer; empty for an address, and if it accepts connections."""
    if ":" in cluster:
        return ""
    chosen = file or DEFAULT_FILE
    return "".join(unanswered(open_topology(chosen), [cluster.partition("@")[0]], chosen))


def control_parts(verb: str, parts: list[str], file: Path) -> None:
    """Ask the supervisor of `file` to start, stop or kill parts, and name what it acted on."""
    runtime = open_runtime(open_topology(file))
    for name in run_control(request(runtime, verb, parts), file):
        say(f"{name}: {verb} done")
