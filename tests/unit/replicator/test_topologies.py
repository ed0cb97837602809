"""Shapes of topologies under prefix naming: what arrives where, and that nothing goes round.

Clusters are sets of topic names; a link copies names as its filter and naming say, over and over until
nothing is new. A topic name stands for its records: its last part says where they were produced.
"""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.filters import TopicFilter
from replicator.naming import HEARTBEATS, Naming
from replicator.settings import TOPICS_EXCLUDE

MOST_ROUNDS = 12


def settled(clusters: dict[str, set[str]], links: Iterable[str], topics: str = ".*") -> dict[str, set[str]]:
    """All topics once nothing is new any more; AssertionError when that never happens."""
    namings = [Naming(*link.split("->")) for link in links]
    for _ in range(MOST_ROUNDS):
        new = False
        for naming in namings:
            wanted = TopicFilter(naming, (topics,), TOPICS_EXCLUDE)
            there = {
                naming.at_target(topic) for topic in clusters[naming.source] if wanted.refuses(topic) is None
            }
            new |= bool(there - clusters[naming.target])
            clusters[naming.target] |= there
        if not new:
            return clusters
    raise AssertionError("it never ends")


def clusters(*aliases: str) -> dict[str, set[str]]:
    return {alias: {f"orders-{alias}"} for alias in aliases}


@pytest.mark.parametrize(
    ("shape", "links", "at", "expected"),
    [
        ("active-passive", ["a->b"], "b", {"orders-b", "a.orders-a"}),
        ("active-active", ["a->b", "b->a"], "a", {"orders-a", "b.orders-b"}),
        ("fan-out", ["a->b", "a->c"], "c", {"orders-c", "a.orders-a"}),
        ("aggregation", ["a->c", "b->c"], "c", {"orders-c", "a.orders-a", "b.orders-b"}),
        ("chain", ["a->b", "b->c"], "c", {"orders-c", "b.orders-b", "b.a.orders-a"}),
        ("hub", ["a->h", "h->a", "b->h", "h->b"], "b", {"orders-b", "h.orders-h", "h.a.orders-a"}),
        (
            "hub of hubs",
            ["a->h", "h->g", "g->h", "g->b"],
            "b",
            {"orders-b", "g.orders-g", "g.h.orders-h", "g.h.a.orders-a"},
        ),
        ("ring", ["a->b", "b->c", "c->a"], "a", {"orders-a", "c.orders-c", "c.b.orders-b"}),
    ],
)
def test_each_shape_carries_everything_once_and_nothing_home(shape, links, at, expected):
    aliases = {alias for link in links for alias in link.split("->")}
    assert settled(clusters(*aliases), links)[at] == expected, shape


def test_several_active_clusters_are_gathered_in_one_stretched_cluster_for_reading():
    writers = [f"site{n}" for n in range(5)]
    world = settled(clusters(*writers, "stretched"), [f"{one}->stretched" for one in writers])
    assert world["stretched"] == {"orders-stretched", *(f"{one}.orders-{one}" for one in writers)}
    assert all(world[one] == {f"orders-{one}"} for one in writers)


def test_heartbeats_reach_the_end_of_a_chain_whatever_topics_says():
    world = {alias: {HEARTBEATS} for alias in "abc"}
    settled(world, ["a->b", "b->c"], topics="orders.*")
    assert world["c"] == {HEARTBEATS, "b.heartbeats", "b.a.heartbeats"}


@given(st.lists(st.sampled_from([f"{a}->{b}" for a in "abcd" for b in "abcd" if a != b]), unique=True))
def test_no_topology_of_prefixes_ends_up_in_a_circle(links):
    world = settled(clusters(*"abcd"), links)
    for alias, topics in world.items():
        for topic in topics:
            way = [*topic.split(".")[:-1]]
            assert alias not in way
            assert len(set(way)) == len(way)
