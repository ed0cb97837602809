"""`isthmus net …`: the simulated links between the sites of a running topology."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from isthmus.output import USAGE, fail, note, print_json, print_table, say

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Slow down, narrow, cut and heal the simulated links between sites (for trying things out).",
)

File = Annotated[Path, typer.Argument(help="topology YAML with a network section", show_default=False)]
From = Annotated[str | None, typer.Option("--from", help="site that sends", show_default=False)]
To = Annotated[str | None, typer.Option("--to", help="site that receives", show_default=False)]
Both = Annotated[bool, typer.Option("--both", help="the way back as well")]
Site = Annotated[str | None, typer.Option(help="all links from and to this site; instead of --from and --to")]
Json = Annotated[bool, typer.Option("--json", help="for machines")]


@app.command()
def show(
    file: File,
    from_: From = None,
    to: To = None,
    both: Both = False,
    site: Site = None,
    as_json: Json = False,
) -> None:
    """Show the links: whether they are up, delay (one way), jitter, loss, bandwidth, what they carried.

    Example: isthmus net show examples/stretched-three-sites.yaml
    """
    _print(_ask(file, {"do": "show", **_which(from_, to, both, site)}), as_json)


@app.command("set")
def set_(
    file: File,
    from_: From = None,
    to: To = None,
    both: Both = False,
    site: Site = None,
    delay: Annotated[str | None, typer.Option(help="one way, for example 10ms", show_default=False)] = None,
    jitter: Annotated[
        str | None, typer.Option(help="up to so much earlier or later, for example 2ms", show_default=False)
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="share of packets, for example 0.1%", show_default=False)
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help="for example 100mbit, 10MB/s, or none", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Change links while they are in use; without --from, --to or --site all of them.

    TCP repairs lost packets, so loss costs time here: a round trip or 200 ms and a round trip for each, and a
    connection has less under way.

    Example: isthmus net set examples/stretched-three-sites.yaml --from paris --to london --both --delay 15ms
    """
    from topology.network import quantities

    changes: dict[str, Any] = {}
    readers: tuple[tuple[str, str | None, Callable[[str], Any]], ...] = (
        ("delay_s", delay, quantities.duration),
        ("jitter_s", jitter, quantities.duration),
        ("loss", loss, quantities.share),
        ("bandwidth", bandwidth, quantities.rate),
    )
    for name, text, read in readers:
        if text is not None:
            try:
                changes[name] = read(text)
            except ValueError as error:
                fail(str(error), USAGE)
    if not changes:
        fail("nothing to set: say --delay, --jitter, --loss or --bandwidth", USAGE)
    links = _ask(file, {"do": "set", "changes": changes, **_which(from_, to, both, site)})
    _print(links, as_json)
    _warn(file)


@app.command()
def cut(
    file: File,
    from_: From = None,
    to: To = None,
    both: Both = False,
    site: Site = None,
    as_json: Json = False,
) -> None:
    """Cut links: nothing arrives any more and nobody is told, as when a cable is dug up.

    With --from and --to one direction only, unless --both is said. Connections stay open and go on after
    isthmus net heal.

    Examples: isthmus net cut examples/stretched-three-sites.yaml --site paris

              isthmus net cut examples/stretched-three-sites.yaml --from paris --to london
    """
    if from_ is None and to is None and site is None:
        fail("say which links: --site NAME, or --from and --to", USAGE)
    request = {"do": "set", "changes": {"up": False}, **_which(from_, to, both, site)}
    _print(_ask(file, request), as_json)


@app.command()
def heal(
    file: File,
    from_: From = None,
    to: To = None,
    both: Both = False,
    site: Site = None,
    as_json: Json = False,
) -> None:
    """Bring cut links back; without --from, --to or --site all of them. Delay and loss stay as they are.

    Example: isthmus net heal examples/stretched-three-sites.yaml
    """
    request = {"do": "set", "changes": {"up": True}, **_which(from_, to, both, site)}
    _print(_ask(file, request), as_json)


@app.command()
def reset(
    file: File,
    from_: From = None,
    to: To = None,
    both: Both = False,
    site: Site = None,
    as_json: Json = False,
) -> None:
    """Set links back to what the topology says.

    Example: isthmus net reset examples/stretched-three-sites.yaml --site paris
    """
    _print(_ask(file, {"do": "reset", **_which(from_, to, both, site)}), as_json)


@app.command()
def addresses(file: File, as_json: Json = False) -> None:
    """Bootstrap servers of each cluster as clients of each site have to know them.

    Clients that use the addresses of a site reach the brokers of the others over the simulated links.

    Example: isthmus net addresses examples/stretched-three-sites.yaml
    """
    from isthmus.topologies import open_runtime, open_topology
    from topology.runtime import NotRunning
    from topology.sites import simulated_sites

    topology = open_topology(file)
    runtime = open_runtime(topology)
    sites = simulated_sites(topology) or fail(_NO_NETWORK.format(file=file), USAGE)
    try:
        found = {
            cluster: {site: runtime.bootstrap_servers(topology, cluster, site) for site in sites}
            for cluster in topology.clusters
        }
    except NotRunning as error:
        fail(str(error))
    if as_json:
        print_json(found)
        return
    rows = [[cluster, site, text] for cluster, by_site in found.items() for site, text in by_site.items()]
    print_table(("cluster", "site", "bootstrap_servers"), rows)


@app.command(hidden=True)
def run(
    file: File,
    data_directory: Annotated[Path | None, typer.Option(show_default=False)] = None,
) -> None:
    """Carry the simulated network of a topology until SIGTERM; isthmus up starts this.

    Example: isthmus net run examples/stretched-three-sites.yaml
    """
    import uvloop

    from isthmus.topologies import open_runtime, open_topology
    from topology.network.process import NetworkFailed, carry
    from topology.routes import network_plan

    topology = open_topology(file, data_directory)
    if topology.network is None:
        fail(_NO_NETWORK.format(file=file), USAGE)
    plan = network_plan(topology, open_runtime(topology))
    try:
        uvloop.run(carry(plan, lambda text: say(f"isthmus network ready: {text}")))
    except NetworkFailed as error:
        fail(str(error))


_NO_NETWORK = "{file} has no network section: there are no simulated links"


def _which(from_: str | None, to: str | None, both: bool, site: str | None) -> dict[str, Any]:
    if site is None:
        return {"from": from_, "to": to, "both": both}
    if from_ is not None or to is not None:
        fail("--site means all links of a site: leave --from and --to out", USAGE)
    return {"from": site, "to": None, "both": True}


def _ask(file: Path, request: dict[str, Any]) -> list[dict[str, Any]]:
    from isthmus.topologies import open_runtime, open_topology
    from topology.network.control import NetworkNotRunning, NetworkRefused, ask
    from topology.routes import network_socket

    topology = open_topology(file)
    if topology.network is None:
        fail(_NO_NETWORK.format(file=file), USAGE)
    try:
        return asyncio.run(ask(network_socket(open_runtime(topology)), request))
    except NetworkNotRunning as error:
        fail(f"{error}: start it with isthmus up {file}")
    except NetworkRefused as error:
        fail(str(error), USAGE)


def _warn(file: Path) -> None:
    """What the delays of now mean for stretched clusters."""
    from isthmus.topologies import open_topology
    from topology.latency import latency_warnings

    delays = {(link["from"], link["to"]): link["delay_ms"] / 1e3 for link in _ask(file, {"do": "show"})}
    for warning in latency_warnings(open_topology(file), delays):
        note(f"warning: {warning}")


def _print(links: list[dict[str, Any]], as_json: bool) -> None:
    from topology.network.quantities import show_duration, show_rate, show_share

    if as_json:
        print_json(links)
        return
    columns = (
        "from",
        "to",
        "state",
        "delay",
        "jitter",
        "loss",
        "bandwidth",
        "round_trip",
        "MB",
        "connections",
    )
    rows = [
        [
            link["from"],
            link["to"],
            "up" if link["up"] else "CUT",
            show_duration(link["delay_ms"] / 1e3),
            show_duration(link["jitter_ms"] / 1e3),
            show_share(link["loss"]),
            show_rate(link["bandwidth_bytes_per_second"]),
            show_duration(link["round_trip_ms"] / 1e3),
            round(link["bytes"] / 1e6, 1),
            link["connections"],
        ]
        for link in links
    ]
    print_table(columns, rows)
    if not links:
        note("no such link")
