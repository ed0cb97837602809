"""Ensembles in a topology: what the file may say, what each server is told, what is said beforehand."""

from itertools import chain, combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.control.zookeeper_ensemble import Ensemble, EnsembleError, Quorums
from topology.load import load_topology, parse_topology
from topology.problems import TopologyError
from topology.processes import process_specs
from topology.quorums import quorum_warnings
from topology.routes import network_plan
from topology.runtime import Runtime
from topology.sites import relay_port

EXAMPLE = Path(__file__).parents[3] / "examples" / "stretched-three-sites.yaml"
HEAD = """
version: 1
name: t
data_directory: d
datacenters: { a: {}, b: {}, c: {} }
clusters:
  main:
    datacenter: a
    brokers: [{ id: 1 }, { id: 2, datacenter: b }]
    zookeeper:
      servers:
"""


def servers(*lines: str) -> str:
    return HEAD + "".join(f"        - {{ {line} }}\n" for line in lines)


def warnings(*lines: str) -> list[str]:
    return quorum_warnings(parse_topology(servers(*lines)))


def problems(text: str) -> list[str]:
    with pytest.raises(TopologyError) as found:
        parse_topology(text)
    return [problem.message for problem in found.value.problems]


def test_each_server_reaches_the_others_over_its_links_and_names_no_address_of_its_own(
    tmp_path: Path,
) -> None:
    topology = load_topology(EXAMPLE)
    runtime = Runtime(tmp_path)
    runtime.choose_ports(topology)
    specs = process_specs(topology, runtime, EXAMPLE)
    paris = specs["main-zookeeper-2"]
    words = " ".join(paris.arguments)
    ports = runtime.ports
    assert paris.datacenter == "paris"
    own = f"--server 2=0.0.0.0:{ports['main-zookeeper-2 quorum']}:{ports['main-zookeeper-2 election']}"
    assert own in words
    quorum, election = (
        ports[relay_port(f"main-zookeeper-1 {kind}", "paris")] for kind in ("quorum", "election")
    )
    assert f"--server 1=127.0.0.1:{quorum}:{election}" in words
    seen = runtime.zookeeper_connect(topology, "main", "paris").split(",")
    assert seen[0] == f"127.0.0.1:{ports['main-zookeeper-2']}"
    assert f"127.0.0.1:{ports[relay_port('main-zookeeper-1', 'paris')]}" in seen
    near = f"zookeeper.connect.preferred=127.0.0.1:{ports['main-zookeeper-2']}"
    assert near in specs["main-broker-2"].arguments
    assert "zookeeper.connection.timeout.ms=50000" in specs["main-broker-2"].arguments
    assert near not in specs["main-broker-1"].arguments
    targets = {route.target_port for route in network_plan(topology, runtime).routes}
    assert ports["main-zookeeper-3 election"] in targets


def test_without_a_simulated_network_servers_are_reached_where_they_are(tmp_path: Path) -> None:
    topology = parse_topology(servers("id: 1", "id: 2, datacenter: b, port: 4001", "id: 3, datacenter: c"))
    runtime = Runtime(tmp_path)
    runtime.choose_ports(topology)
    words = " ".join(process_specs(topology, runtime, tmp_path)["main-zookeeper-1"].arguments)
    ports = runtime.ports
    assert ports["main-zookeeper-2"] == 4001
    assert f"--server 1=127.0.0.1:{ports['main-zookeeper-1 quorum']}" in words
    assert f"--server 3=127.0.0.1:{ports['main-zookeeper-3 quorum']}" in words


def test_a_broker_prefers_none_if_all_servers_are_in_one_site_or_none_in_its_own(
    tmp_path: Path,
) -> None:
    for text in (servers("id: 1", "id: 2", "id: 3"), servers("id: 1, datacenter: b", "id: 2, datacenter: c")):
        topology = parse_topology(text)
        runtime = Runtime(tmp_path)
        runtime.choose_ports(topology)
        arguments = process_specs(topology, runtime, tmp_path)["main-broker-1"].arguments
        assert "zookeeper.connect.preferred" not in " ".join(arguments)


def test_groups_and_weights_reach_the_servers(tmp_path: Path) -> None:
    topology = parse_topology(
        servers("id: 1, group: x", "id: 2, group: x, weight: 2", "id: 3, datacenter: b, group: y")
    )
    runtime = Runtime(tmp_path)
    runtime.choose_ports(topology)
    words = " ".join(process_specs(topology, runtime, tmp_path)["main-zookeeper-3"].arguments)
    assert "--group 1:2 --group 3 --weight 2=2" in words


def test_three_sites_and_a_tie_breaker_need_no_warning() -> None:
    assert warnings("id: 1", "id: 2, datacenter: b", "id: 3, datacenter: c") == []
    tie = ("id: 1", "id: 2", "id: 3, datacenter: b", "id: 4, datacenter: b", "id: 5, datacenter: c")
    assert warnings(*tie) == []


def test_two_sites_with_hierarchical_quorums_are_warned_about_loudly() -> None:
    found = warnings(
        *(f"id: {number}, group: west" for number in (1, 2, 3)),
        *(f"id: {number}, group: east, datacenter: b" for number in (4, 5, 6)),
    )
    assert len(found) == 4
    assert "when a is lost" in found[0]
    assert "when b is lost" in found[1]
    assert "a cut between a and b LEAVES NO WRITER" in found[2]
    assert "TWO SIDES BELIEVE" in found[2]
    assert "2 groups survive the loss of 0, as 1 do" in found[3]


def test_groups_are_numbers_too_and_one_without_weight_does_not_count() -> None:
    found = warnings(
        *(f"id: {number}, group: 1" for number in (1, 2, 3)),
        *(f"id: {number}, group: 2, datacenter: b, weight: 0" for number in (4, 5, 6)),
    )
    assert "when a is lost" in found[0]
    assert not any("survive the loss" in said for said in found)


def test_two_sites_with_a_majority_in_one_lose_with_that_one() -> None:
    [only] = warnings("id: 1", "id: 2", "id: 3, datacenter: b")
    assert "when a is lost" in only


def test_a_group_in_a_third_site_mends_hierarchical_quorums() -> None:
    found = warnings("id: 1, group: x", "id: 2, group: y, datacenter: b", "id: 3, group: z, datacenter: c")
    assert found == []


def test_servers_in_one_site_of_a_stretched_cluster() -> None:
    [only] = warnings("id: 1", "id: 2", "id: 3")
    assert "all its servers are in a" in only


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("id: 1", "id: 1"), "ZooKeeper server 1 is there twice"),
        (("id: 1, datacenter: aa",), "there is no datacenter 'aa'"),
        (("id: 1, group: x", "id: 2"), "some servers have a group and these have none: 2"),
        (("id: 1, weight: 0",), "weights count in groups only"),
        (("id: 256",), "has to be at most 255"),
    ],
)
def test_mistakes(lines: tuple[str, ...], said: str) -> None:
    assert any(said in message for message in problems(servers(*lines)))


@pytest.mark.parametrize(
    ("servers", "groups", "weights", "said"),
    [
        (["1=h:1"], [], [], "ID=HOST:QUORUM_PORT:ELECTION_PORT"),
        (["2=h:1:2"], [], [], "server 1 is not among"),
        (["1=h:1:2", "1=h:3:4"], [], [], "an id twice"),
        (["1=h:1:2", "2=h:3:4"], ["1"], [], "each once"),
        (["1=h:1:2"], ["1:x"], [], "write their ids with colons"),
        (["1=h:1:2"], ["1"], ["2=1"], "is no weight"),
        (["1=h:1:2"], [], ["1=1"], "weights count in groups only"),
    ],
)
def test_mistakes_on_the_command_line(
    servers: list[str], groups: list[str], weights: list[str], said: str
) -> None:
    with pytest.raises(EnsembleError, match=said):
        Ensemble.parse(1, servers, groups, weights)


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=3).filter(
        lambda groups: sum(map(sum, groups)) > 0
    )
)
def test_two_quorums_share_a_server(groups: list[list[int]]) -> None:
    """Whatever groups and weights: never two sides by themselves."""
    numbers = iter(range(1, 100))
    members = tuple(tuple(next(numbers) for _ in group) for group in groups)
    flat = tuple(chain.from_iterable(members))
    rules = Quorums(flat, members, dict(zip(flat, chain.from_iterable(groups), strict=True)))
    subsets = chain.from_iterable(combinations(flat, size) for size in range(len(flat) + 1))
    assert not any(rules.holds(side) and rules.holds(set(flat) - set(side)) for side in subsets)
