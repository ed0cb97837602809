"""docs/known-failures.md names tests: each of them exists."""

import ast
import re
from pathlib import Path

import pytest

from replicator.filters import TopicFilter
from replicator.naming import Naming

ROOT = Path(__file__).resolve().parents[3]
NAMED = sorted(
    set(re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs/known-failures.md").read_text(encoding="utf-8")))
)


def test_there_are_some():
    assert len(NAMED) > 40


@pytest.mark.parametrize("path", sorted({path for path, _ in NAMED}))
def test_every_test_that_the_page_names_exists(path):
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert {name for other, name in NAMED if other == path} <= there


@pytest.mark.parametrize("topic", ["patient-heartbeats", "myheartbeats", "heartbeats2"])
def test_a_topic_that_merely_ends_in_heartbeats_is_one_like_any_other(topic):
    taken = TopicFilter(Naming("east", "west"), [".*"], [])
    filtered = TopicFilter(Naming("east", "west"), ["orders"], [])
    assert taken.refuses(topic) is None
    assert filtered.refuses(topic) is not None


def test_a_topic_that_looks_like_heartbeats_of_a_cluster_and_holds_none_is_left_out_by_its_name():
    filtered = TopicFilter(Naming("east", "west"), ["orders"], [])
    assert filtered.refuses("my.heartbeats") is None
    filtered.tell("my.heartbeats", is_heartbeats=False)
    assert "holds no heartbeats" in filtered.refuses("my.heartbeats")
    filtered.tell("my.heartbeats", is_heartbeats=True)
    assert filtered.refuses("my.heartbeats") is None
