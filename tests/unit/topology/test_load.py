"""A topology file: every mistake at once, each with its line; references, secrets, defaults."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from topology.load import load_topology, parse_topology
from topology.problems import TopologyError

GOOD = """\
version: 1
name: pair
data_directory: state
datacenters: {a: {}, b: {}}
clusters:
  east: {datacenter: a, brokers: [{id: 1}]}
  west: {datacenter: b, bootstrap_servers: "kafka:9092"}
links:
  east->west: {topics: [orders]}
"""


def problems_of(text: str) -> list[tuple[int, str]]:
    with pytest.raises(TopologyError) as caught:
        parse_topology(text)
    return [(problem.line, problem.message) for problem in caught.value.problems]


def test_defaults_are_filled_in_and_the_data_directory_starts_at_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pair.yaml"
    file.write_text(GOOD)
    topology = load_topology(file)
    assert topology.data_directory == tmp_path / "state"
    assert topology.link_ends("east->west") == ("east", "west")
    assert topology.link_datacenter("east->west") == "b"
    assert topology.links["east->west"].naming == "prefix"


def test_five_mistakes_are_five_problems_with_their_lines() -> None:
    text = """\
version: 1
name: pair
data_directory: state
datacenters: {a: {}}
clusters:
  east:
    datacenter: aa
    brokers:
      - {id: 1, port: 99999}
      - {id: 1}
    topics:
      orders: {partitons: 3}
links:
  east->west: {}
"""
    found = problems_of(text)
    assert [line for line, _ in found] == [7, 9, 10, 12, 14]
    messages = [message for _, message in found]
    assert "there is no datacenter 'aa'" in messages[0]
    assert "has to be at most 65535 (found: 99999)" in messages[1]
    assert "broker id 1 is used twice in east" in messages[2]
    assert "did you mean 'partitions'?" in messages[3]
    assert "there is no cluster 'west'" in messages[4]


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("", 1, "a mapping"),
        ("- a\n- b\n", 1, "a mapping"),
        ("version: 1\nname: [\n", 3, "not valid YAML"),
        (GOOD + "name: again\n", 10, "not valid YAML"),
        (GOOD.replace("version: 1", "version: 7"), 1, "has to be 1 (found: 7)"),
        (GOOD.replace("east->west:", "east-west:"), 9, "write source->target"),
        (GOOD.replace("east->west:", "east->east:"), 9, "copies a cluster into itself"),
        (GOOD.replace("[{id: 1}]", "[]"), 6, "needs brokers"),
        (GOOD.replace("{topics: [orders]}", "{runs_in: moon}"), 9, "there is no datacenter 'moon'"),
    ],
)
def test_one_mistake(text: str, line: int, part: str) -> None:
    found = problems_of(text)
    assert [line for line, _ in found] == [line]
    assert part in found[0][1]


def test_a_missing_file_is_a_problem_too(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="cannot be read"):
        load_topology(tmp_path / "nothing.yaml")


def test_secrets_come_by_reference_and_are_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = GOOD + "object_stores:\n  s: {bucket: backups, access_key: '${env:KEY}', secret_key: '%s'}\n"
    secret = tmp_path / "secret"
    secret.write_text("hush\n")
    monkeypatch.setenv("KEY", "id")
    opened = parse_topology(store % f"${{file:{secret}}}").object_stores["s"]
    assert (opened.access_key, opened.secret_key) == ("id", "hush")
    monkeypatch.delenv("KEY")
    found = problems_of(store % "${file:/nowhere/at/all}")
    assert [line for line, _ in found] == [11, 11]
    assert {"KEY", "/nowhere/at/all"} <= {word for _, message in found for word in message.split()}


def test_identity_naming_both_ways_would_circle() -> None:
    text = GOOD.replace("{topics: [orders]}", "{naming: identity}") + "  west->east: {naming: identity}\n"
    assert [line for line, _ in problems_of(text)] == [9, 10]
    parse_topology(text.replace("identity}", "identity, origin_headers: true}"))
    parse_topology(text.replace("west->east: {naming: identity}", "west->east: {}"))


def test_a_mirror_that_is_copied_back_would_circle() -> None:
    mirrors = "{naming: identity, offsets: identical}"
    text = GOOD.replace("{topics: [orders]}", mirrors) + "  west->east: {naming: identity}\n"
    assert [line for line, _ in problems_of(text)] == [9, 10]
    parse_topology(text.replace("west->east: {naming: identity}", f"west->east: {mirrors}"))


def test_the_example_is_valid() -> None:
    assert load_topology(Path("examples/two-datacenters.yaml")).links
    assert load_topology(Path("examples/links.yaml")).links["east->west"].exactly_once


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n" for before, name in pairwise("abcdefgh")
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "aliases make more than 100000 values of it"),
        ("a: &a\n  b: *a\n  c: [*a]\n", "unknown key"),
        ("[" * 5000, "nested too deeply, or an alias holds itself"),
        (GOOD.replace("version: 1", "version: " + "9" * 5000), "cannot be understood: Exceeds the limit"),
        (GOOD.replace("east: {", "1: {"), "there is no cluster 'east'"),
        (GOOD.replace("b: {}}", "1.5: {}, true: {}, null: {}}"), "there is no datacenter 'b'"),
        (GOOD.replace("clusters:\n", "clusters:\n  ? [a, b]\n  : {datacenter: a}\n"), "has to be text"),
        (GOOD.replace("datacenter: a", "datacenter: [a]"), "has to be text"),
        (GOOD.replace("id: 1", "id: [1]"), "has to be a whole number"),
        (GOOD.replace("kafka:9092", "kafka"), "address 'kafka' is not of the form host:port"),
        (GOOD.replace("kafka:9092", "kafka:9092,kafka:99999"), "address 'kafka:99999' is not of the form"),
        (GOOD.replace("kafka:9092", ""), "no bootstrap address is given"),
        (GOOD.replace("[orders]", '["("]'), "'(' is not a regular expression"),
        (GOOD + "backups: {x: {cluster: [1], store: {a: b}, topics: [t]}}\n", "has to be text"),
    ],
)  # fmt: skip
def test_what_yaml_allows_and_a_topology_does_not_is_a_problem_and_never_a_crash(
    text: str, message: str
) -> None:
    assert any(message in found for _, found in problems_of(text))


def test_a_file_that_was_damaged_anywhere_is_refused_or_read_and_never_a_crash() -> None:
    example = (Path(__file__).parents[3] / "examples" / "two-datacenters.yaml").read_text()
    chance = random.Random(5)
    refused = 0
    for _ in range(100):
        letters = list(example)
        for _ in range(chance.randint(1, 8)):
            at = chance.randrange(len(letters))
            letters[at : at + chance.randint(0, 9)] = chance.choice(
                ["", *"{}[]:-,&*!|>?\n\t 0é", "<<: ", "!!set "]
            )
        try:
            parse_topology("".join(letters))
        except TopologyError:
            refused += 1
    assert refused > 60


def test_settings_of_brokers_and_topics_are_checked_as_the_broker_does() -> None:
    text = """\
version: 1
name: pair
data_directory: state
datacenters: {a: {}}
clusters:
  east:
    datacenter: a
    settings:
      log.retention.hors: 5
      num.partitions: 3
    brokers:
      - id: 1
        settings:
          log.segment.bytes: tiny
          process.roles: broker
    topics:
      orders:
        configs:
          retention.mss: 5
          cleanup.policy: compact
  elsewhere: {datacenter: a, bootstrap_servers: "kafka:9092", settings: {theirs: 1}}
"""
    found = problems_of(text)
    assert [line for line, _ in found] == [9, 14, 15, 19]
    messages = [message for _, message in found]
    assert "log.retention.hours" in messages[0]
    assert "whole number" in messages[1]
    assert "use ZooKeeper" in messages[2]
    assert "retention.ms" in messages[3]


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ("{topics: [orders], offsets: identical}", "naming has to be identity"),
        ("{topics: [orders], origin_headers_ignored: true}", "origin_headers: true"),
    ],
)
def test_settings_of_a_link_that_do_not_go_together_are_a_mistake_of_the_file(link: str, said: str) -> None:
    [(line, message)] = problems_of(GOOD.replace("{topics: [orders]}", link))
    assert line == 9
    assert said in message
    assert "pydantic" not in message
    assert "Value error" not in message
