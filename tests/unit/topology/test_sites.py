"""Sites in a topology: what the file may say, and who is told which address."""

from pathlib import Path

import pytest

from topology.load import load_topology, parse_topology
from topology.problems import TopologyError
from topology.processes import process_specs
from topology.routes import network_plan
from topology.runtime import Runtime
from topology.sites import is_stretched, relay_port, site_links

EXAMPLE = Path(__file__).parents[3] / "examples" / "stretched-three-sites.yaml"
SMALL = """
version: 1
name: t
data_directory: d
datacenters: {{ a: {{}}, b: {{}} }}
network: {network}
clusters:
  main:
    datacenter: a
    brokers: [{{ id: 1 }}, {{ id: 2, datacenter: {place} }}]
"""


def problems(network: str, place: str = "b") -> list[str]:
    with pytest.raises(TopologyError) as found:
        parse_topology(SMALL.format(network=network, place=place))
    return [problem.message for problem in found.value.problems]


def test_the_example_is_one_cluster_in_three_places() -> None:
    topology = load_topology(EXAMPLE)
    assert is_stretched(topology.clusters["main"])
    links = site_links(topology)
    assert len(links) == 6
    assert (links["london", "paris"].delay, links["paris", "london"].bandwidth) == (0.005, 125e6)
    assert links["zurich", "paris"].delay == 0.006


def test_a_broker_tells_each_site_the_address_that_leads_over_its_link(tmp_path: Path) -> None:
    topology = load_topology(EXAMPLE)
    runtime = Runtime(tmp_path)
    runtime.choose_ports(topology)
    specs = process_specs(topology, runtime, EXAMPLE)
    words = " ".join(specs["main-broker-2"].arguments)
    relay = runtime.ports[relay_port("main-broker-2", "london")]
    own = runtime.ports["main-broker-2 for paris"]
    assert f"--advertised-listener FROM_LONDON://127.0.0.1:{relay}" in words
    assert (
        f"--listener FROM_PARIS://127.0.0.1:{own} --advertised-listener FROM_PARIS://127.0.0.1:{own}" in words
    )
    assert "inter.broker.listener.name=FROM_PARIS" in words
    assert "--rack paris" in words
    assert specs["main-broker-2"].datacenter == "paris"
    assert str(own) in runtime.bootstrap_servers(topology, "main", "paris")
    assert str(own) not in runtime.bootstrap_servers(topology, "main", "london")
    assert next(iter(specs)) == "network"


def test_there_is_a_relay_for_each_process_and_each_other_site(tmp_path: Path) -> None:
    topology = load_topology(EXAMPLE)
    runtime = Runtime(tmp_path)
    runtime.choose_ports(topology)
    routes = network_plan(topology, runtime).routes
    assert {(route.source, route.target) for route in routes if route.name == "main-broker-3"} == {
        ("london", "zurich"),
        ("paris", "zurich"),
    }
    assert len({route.port for route in routes}) == len(routes)
    assert not {route.port for route in routes} & {route.target_port for route in routes}


def test_without_a_network_section_nothing_changes(tmp_path: Path) -> None:
    topology = parse_topology(SMALL.format(network="null", place="b"), folder=tmp_path)
    runtime = Runtime(tmp_path)
    runtime.choose_ports(topology)
    specs = process_specs(topology, runtime, tmp_path / "f.yaml")
    assert "network" not in specs
    assert " ".join(specs["main-broker-2"].arguments).count("listener") == 1
    assert runtime.bootstrap_servers(topology, "main", "a") == runtime.bootstrap_servers(topology, "main")


def test_mistakes_in_links_are_named() -> None:
    assert problems("{links: {a->c: {}}}") == ["there is no datacenter 'c'; possible: a, b"]
    assert problems("{links: {a->b: {}, a<->b: {}}}") == ["describes a->b, as a->b does"]
    assert problems("{links: {a->a: {}}}") == ["leads from a datacenter to itself"]
    assert "names no two sites" in problems("{links: {a-b: {}}}")[0]
    assert "say us, ms or s" in problems("{default: {delay: 10}}")[0]
    assert problems("{}", place="c") == ["there is no datacenter 'c'; possible: a, b"]
    assert "unknown key; did you mean 'delay'?" in problems("{default: {dely: 10ms}}")[0]
