"""REST of a topology's links: what is wrong with it, and what is better known before."""

import pytest

from topology.load import load_topology
from topology.problems import TopologyError
from topology.warnings import topology_warnings

LINKS = """
version: 1
name: links
data_directory: data
datacenters: {east: {}, west: {}}
clusters:
  east: {datacenter: east, bootstrap_servers: "east-1:9092"}
  west: {datacenter: west, bootstrap_servers: "west-1:9092"}
links: {east->west: {}}
rest: """


def loaded(tmp_path, rest):
    file = tmp_path / "links.yaml"
    file.write_text(LINKS + rest)
    return load_topology(file)


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("{port: 8083}", []),
        ("{port: 8083, host: localhost}", []),
        ("{port: 8083, host: 0.0.0.0}", ["token_file", "in clear"]),
        ("{port: 8083, host: west.example, token_file: token}", ["in clear"]),
        ("{port: 8083, host: 0.0.0.0, keystore: rest.pem}", ["token_file"]),
        ("{port: 8083, host: 0.0.0.0, keystore: rest.pem, token_file: token}", []),
        ("{port: 8083, host: 0.0.0.0, keystore: rest.pem, client_ca: ca.pem}", []),
    ],
)
def test_what_others_reach_is_warned_of(tmp_path, rest, words):
    found = topology_warnings(loaded(tmp_path, rest))
    assert len(found) == len(words)
    for warning, word in zip(found, words, strict=True):
        assert word in warning


def test_files_are_found_from_the_folder_of_the_yaml(tmp_path):
    rest = loaded(tmp_path, "{port: 8083, keystore: tls/rest.pem, token_file: /etc/token}").rest
    assert rest.keystore == (tmp_path / "tls/rest.pem").resolve()
    assert str(rest.token_file) == "/etc/token"


def test_certificates_of_clients_need_tls(tmp_path):
    with pytest.raises(TopologyError, match="client_ca needs a keystore"):
        loaded(tmp_path, "{port: 8083, client_ca: ca.pem}")
