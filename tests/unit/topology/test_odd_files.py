"""Files that no person would write, or only by accident: always problems with lines, never a traceback."""

import random

import pytest

from topology.load import parse_topology
from topology.problems import TopologyError

EXAMPLE = """\
version: 1
name: pair
data_directory: state
datacenters: {a: {}, b: {}}
clusters:
  east: {datacenter: a, brokers: [{id: 1, port: 0}]}
  west: {datacenter: b, bootstrap_servers: "kafka:9092"}
links: {east->west: {topics: [orders]}}
object_stores: {vault: {kind: local, bucket: backups}}
backups: {daily: {cluster: east, store: vault, topics: [orders]}}
"""
ODD = [
    "1",
    "[]",
    "{}",
    "null",
    "-1",
    "1e999",
    "'x'",
    "[[[]]]",
    "{a: {b: 1}}",
    "true",
    "2020-01-01",
    "!!binary aa",
]


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [*a]\n",
        "a: &a\n  b: *a\n",
        "x: " + "[" * 3000 + "]" * 3000 + "\n",
        "\tname: x\n",
        "\x00",
        "? [a, b]\n: c\n",
        EXAMPLE.replace("{id: 1, port: 0}", "{id: [1], port: {}}"),
        EXAMPLE.replace("cluster: east", "cluster: [east]"),
        EXAMPLE.replace("datacenter: a", "datacenter: {a: 1}"),
        "l1: &l1 [1,1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"l{n}: &l{n} [{','.join([f'*l{n - 1}'] * 10)}]\n" for n in range(2, 8)),
    ],
)
def test_odd_files_are_refused(text: str) -> None:
    with pytest.raises(TopologyError):
        parse_topology(text)


def test_any_value_in_any_place_is_a_problem_or_fine() -> None:
    chance = random.Random(7)
    lines = EXAMPLE.splitlines()
    for _ in range(100):
        changed = list(lines)
        where = chance.randrange(len(lines))
        head = changed[where].partition(":")[0]
        changed[where] = f"{head}: {chance.choice(ODD)}"
        lines_named = [1]
        try:
            parse_topology("\n".join(changed))
        except TopologyError as error:
            lines_named = [problem.line for problem in error.problems]
        assert min(lines_named) >= 1
