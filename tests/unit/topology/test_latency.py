"""Predicted produce latency, and what a topology warns of before it is started."""

from pathlib import Path

import pytest

from topology.latency import latency_warnings, produce_latency
from topology.load import load_topology, parse_topology
from topology.models import Topology
from topology.warnings import topology_warnings

EXAMPLE = Path(__file__).parents[3] / "examples" / "stretched-three-sites.yaml"
TWO_SITES = """
version: 1
name: t
data_directory: d
datacenters: {{ a: {{}}, b: {{}} }}
network: {{ default: {{ delay: {delay} }} }}
clusters:
  main:
    datacenter: a
    brokers: [{{ id: 1 }}, {{ id: 2 }}, {{ id: 3, datacenter: b }}, {{ id: 4, datacenter: b }}]
    settings:
      {{ default.replication.factor: 4, min.insync.replicas: {minimum}, {internal} }}
"""


def two_sites(delay: str = "1ms", minimum: int = 3, offsets: int = 4, transactions: int = 4) -> Topology:
    internal = (
        f"offsets.topic.replication.factor: {offsets}, transaction.state.log.min.isr: {min(transactions, 3)},"
        f" transaction.state.log.replication.factor: {transactions}"
    )
    return parse_topology(TWO_SITES.format(delay=delay, minimum=minimum, internal=internal))


def test_the_farthest_follower_and_the_way_to_the_leader_count() -> None:
    one_way = {
        pair: delay
        for (a, b), delay in {("a", "b"): 0.005, ("a", "c"): 0.02, ("b", "c"): 0.01}.items()
        for pair in ((a, b), (b, a))
    }
    near = produce_latency(one_way, "a", "a", ["b", "c"])
    assert near.follower == "c"
    assert near.idle == pytest.approx(0.04)
    assert near.worst == pytest.approx(0.08)
    far = produce_latency(one_way, "a", "b", ["a", "c"])
    assert far.follower == "c"
    assert far.idle == pytest.approx(0.03)
    assert far.average == pytest.approx(0.04)
    alone = produce_latency(one_way, "a", "a", [])
    assert alone.idle == alone.worst == 0


def test_the_example_warns_of_nothing() -> None:
    assert topology_warnings(load_topology(EXAMPLE)) == []


def test_above_30_ms_there_and_back_the_latency_to_expect_is_said() -> None:
    assert latency_warnings(two_sites("15ms")) == []
    (warning,) = latency_warnings(two_sites("20ms"))
    assert "a and b (40 ms)" in warning
    assert "from 40 ms" in warning  # producer beside the leader: the follower's round trip
    assert "to 120 ms" in warning  # producer and follower both on the other side, busy


def test_what_the_loss_of_a_site_means_is_said() -> None:
    stops, groups, transactions = topology_warnings(two_sites(minimum=3))
    until = "writes with acks=all stop until isthmus configs min-isr lower --to 2 --cluster main"
    assert until in stops
    assert "group positions (offsets.topic.replication.factor)" in groups
    assert until in groups
    assert "transactions (transaction.state.log.replication.factor" in transactions
    loses, groups, _ = topology_warnings(two_sites(minimum=2))
    assert "acknowledged while only one site has it" in loses
    assert "acknowledged while only one site has it" in groups


def test_a_topic_that_no_write_with_acks_all_ever_reaches_is_named() -> None:
    refused, groups, _ = topology_warnings(two_sites(minimum=5))
    assert "topics by default: min.insync.replicas 5 is above its replication factor 4" in refused
    assert "group positions (offsets.topic.replication.factor): min.insync.replicas 5 is above" in groups


def test_group_positions_and_transactions_in_one_site_only_are_said() -> None:
    found = topology_warnings(two_sites(offsets=1))
    assert any("group positions" in said and "is above its replication factor 1" in said for said in found)
    found = topology_warnings(two_sites(transactions=1))
    assert any("transactions" in said and "only one site has it" in said for said in found)


def test_unclean_elections_are_said() -> None:
    text = TWO_SITES.format(delay="1ms", minimum=3, internal="unclean.leader.election.enable: true")
    (said,) = [each for each in topology_warnings(parse_topology(text)) if "unclean" in each]
    assert "all topics that do not say otherwise" in said
