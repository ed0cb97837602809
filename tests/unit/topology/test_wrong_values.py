"""What is said of wrong values: where, what has to stand there, and no word of the library that found it."""

import re

import pytest

from topology.load import parse_topology
from topology.problems import TopologyError

BAD = """\
version: 2
name: "a b"
data_directory: 5
datacenters: [here]
clusters:
  east: {datacenter: here, bootstrap_servers: 9092}
  west: {datacenter: here, brokers: {id: 1}}
  north: nothing
  south:
    datacenter: here
    settings: {log.retention.ms: [1]}
    brokers: [{id: x, port: 99999}, 3]
links:
  east->west:
    topics: orders
    exactly_once: maybe
    rate_limit: 5MB
    naming: Prefix
    refresh_topics_interval_s: 0
    flow: {max_bytes_in_flight: 1}
    topics_exclude: [3]
    separator: ""
    start:
  east->south: [a]
rest: {port: 8083, token_file: [a]}
objectives: {here: {rto_seconds: soon}}
backups: {b: {cluster: east, store: s, topics: orders, format: Avro}}
"""


@pytest.fixture(scope="module")
def found():
    with pytest.raises(TopologyError) as caught:
        parse_topology(BAD)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    "line",
    [
        "line 1: version: has to be 1 (found: 2)",
        "line 4: datacenters: has to be a mapping, `name: value` for each setting (found: a list)",
        "line 6: clusters.east.bootstrap_servers: has to be text: write '9092', with the quotes"
        " (found: 9092)",
        "line 11: clusters.south.settings.log.retention.ms: has to be text, a whole number, a number or"
        " true or false (found: a list)",
        "line 12: clusters.south.brokers.0.port: has to be at most 65535 (found: 99999)",
        "line 15: links.east->west.topics: has to be a list: write [orders] (found: 'orders')",
        "line 16: links.east->west.exactly_once: has to be true or false (found: 'maybe')",
        "line 17: links.east->west.rate_limit: has to be a whole number, without a unit (found: '5MB')",
        "line 18: links.east->west.naming: has to be 'prefix' or 'identity'; did you mean 'prefix'?"
        " (found: 'Prefix')",
        "line 19: links.east->west.refresh_topics_interval_s: has to be more than 0 (found: 0)",
        "line 20: links.east->west.flow.max_bytes_in_flight: has to be at least 1048576 (found: 1)",
        "line 22: links.east->west.separator: has to have at least 1 character (found: '')",
        "line 23: links.east->west.start: has to be 'earliest' or 'latest' (found: nothing)",
        "line 26: objectives.here.rpo_seconds: is missing",
        "line 26: objectives.here.rto_seconds: has to be a number (found: 'soon')",
    ],
)
def test_where_what_and_what_to_write_instead(found, line):
    assert line in found


def test_no_word_of_the_library_reaches_people(found):
    jargon = re.compile(
        r"[Ii]nput|instance of|<class|unable to|valid (tuple|string|integer|dict)|Value error"
    )
    assert [line for line in found if jargon.search(line)] == []
    assert [line for line in found if not re.match(r"line \d+: [a-z]", line)] == []
