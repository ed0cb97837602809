"""How to be let in to clusters that run elsewhere: what a file may say, what is wrong, who gets it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from protocol.client.access import Access
from tests.support.certificates import Authority
from topology.client_settings import client_properties
from topology.load import parse_topology
from topology.models import Topology
from topology.problems import TopologyError
from topology.runtime import Runtime
from topology.settings import backup_settings, link_audit_settings, link_settings, restore_settings

PASSWORD = "open sesame, please"
FILE = """\
version: 1
name: secure
data_directory: data
datacenters: {{ here: , there: }}
clusters:
  east:
    datacenter: here
    bootstrap_servers: east.example:9093
    client:
{client}
  west: {{ datacenter: there, bootstrap_servers: "west.example:9092" }}
links:
  east->west: {{}}
object_stores:
  vault: {{ bucket: vault, endpoint: "http://localhost:1" }}
backups:
  nightly: {{ cluster: east, store: vault, topics: [orders] }}
"""


def load(client: str, folder: Path) -> Topology:
    return parse_topology(FILE.format(client=textwrap.indent(client, " " * 6)), folder=folder)


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topology:
    Authority(tmp_path / "certificates")
    monkeypatch.setenv("EAST_PASSWORD", PASSWORD)
    text = (
        "security.protocol: SASL_SSL\nsasl.mechanism: SCRAM-SHA-512\nsasl.username: replicator\n"
        "sasl.password: ${env:EAST_PASSWORD}\nssl.truststore.location: certificates/authority.pem\n"
    )
    return load(text, tmp_path)


def test_links_backups_restores_and_audits_are_let_in(secured: Topology, tmp_path: Path) -> None:
    runtime = Runtime(tmp_path)
    link = link_settings(secured, runtime, "east->west")
    audit = link_audit_settings(secured, runtime, "east->west", ["orders"], by_content=False)
    backup = backup_settings(secured, runtime, "nightly", "nightly-1")
    restore = restore_settings(secured, runtime, "nightly", "nightly-1", "east")
    for settings in (link.source, audit.source, backup, restore):
        properties = settings.properties  # type: ignore[union-attr]
        assert properties["sasl.password"] == PASSWORD
        assert properties["ssl.truststore.location"] == str(tmp_path / "certificates/authority.pem")
        assert properties["ssl.truststore.type"] == "PEM"
    for settings in (link.target, audit.target, audit.alignment):
        assert not settings.properties  # type: ignore[union-attr]


def test_a_password_shows_nowhere(secured: Topology, tmp_path: Path) -> None:
    runtime = Runtime(tmp_path)
    shown = [
        secured,
        runtime.access(secured, "east"),
        link_settings(secured, runtime, "east->west"),
        backup_settings(secured, runtime, "nightly", "nightly-1"),
        link_audit_settings(secured, runtime, "east->west", ["orders"], by_content=False),
    ]
    assert PASSWORD not in "".join(map(repr, shown))
    assert PASSWORD not in "".join(map(str, shown))


@pytest.mark.parametrize(
    ("client", "line", "said"),
    [
        ("security.protocoll: SSL", 10, "did you mean 'security.protocol'"),
        ("security.protocol: TLS", 10, "TLS is not among"),
        ("security.protocol: SASL_PLAINTEXT\nsasl.mechanism: PLAIN\nsasl.jaas.config: x", 12, "jaas"),
        ("security.protocol: SASL_PLAINTEXT\nsasl.mechanism: GSSAPI\nsasl.jaas.config: x", 11, "not offered"),
        (
            "security.protocol: SASL_PLAINTEXT\nsasl.mechanism: OAUTHBEARER\nsasl.username: a\n"
            "sasl.password: 'secret'",
            9,
            "sasl.oauthbearer.token.endpoint.url: is not set",
        ),
        ("security.protocol: SASL_PLAINTEXT\nsasl.mechanism: PLAIN\nsasl.username: a", 9, "sasl.password"),
        ("security.protocol: SSL\nssl.truststore.location: nowhere.pem", 11, "No such file"),
        ("security.protocol: SSL\nsasl.username: me", 11, "has no meaning with security.protocol SSL"),
        ("sasl.password: 'secret'", 10, "has no meaning with security.protocol PLAINTEXT"),
        ("security.protocol: SASL_PLAINTEXT\nsasl.password: ${env:NOT_THERE_AT_ALL}", 11, "is not set"),
    ],
)
def test_what_is_wrong_is_named_with_its_line_and_without_secrets(
    client: str, line: int, said: str, tmp_path: Path
) -> None:
    with pytest.raises(TopologyError) as error:
        load(client, tmp_path)
    assert said in str(error.value)
    assert f"line {line}:" in str(error.value)
    assert "secret" not in str(error.value)


def test_tokens(tmp_path: Path) -> None:
    """The trust store is the token endpoint's too, so it has a meaning without TLS at the brokers."""
    authority = Authority(tmp_path / "certificates")
    lines = (
        "security.protocol: SASL_PLAINTEXT\nsasl.mechanism: OAUTHBEARER\n"
        "sasl.oauthbearer.token.endpoint.url: https://idp.example/token\n"
        "sasl.oauthbearer.client.credentials.client.id: isthmus\n"
        "sasl.oauthbearer.client.credentials.client.secret: hunter2\n"
        f"ssl.truststore.location: {authority.certificate_file}"
    )
    access = Runtime(tmp_path).access(load(lines, tmp_path), "east")
    assert access.librdkafka()["sasl.mechanism"] == "OAUTHBEARER"
    assert "hunter2" not in repr(access)
    useless = "security.protocol: SASL_PLAINTEXT\nsasl.mechanism: PLAIN\nsasl.username: a\nsasl.password: b\n"
    with pytest.raises(TopologyError, match=r"line 14: .*has no meaning with sasl.mechanism PLAIN"):
        load(f"{useless}sasl.oauthbearer.scope: kafka", tmp_path)


def test_brokers_that_are_started_here_have_no_client_section(tmp_path: Path) -> None:
    text = FILE.replace(
        "    bootstrap_servers: east.example:9093\n",
        "    brokers: [ { id: 1 } ]\n".replace("{", "{{").replace("}", "}}"),
    )
    with pytest.raises(TopologyError, match="is for clusters with bootstrap_servers"):
        parse_topology(text.format(client="      security.protocol: SSL"), folder=tmp_path)


def test_librdkafka_gets_its_own_names() -> None:
    access = Access(
        "h:1",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": 'PlainLoginModule required username="ada" password="s3=,;";',
            "ssl.truststore.location": "ca.pem",
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": "me.pem",
            "ssl.key.password": "k",
            "ssl.endpoint.identification.algorithm": "",
        },
    )
    assert access.librdkafka() == {
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": "s3=,;",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.pem",
        "ssl.key.password": "k",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_a_store_with_a_password_is_javas(tmp_path: Path) -> None:
    given = {
        "ssl.truststore.location": "trust.jks",
        "ssl.truststore.password": "s",
        "ssl.keystore.location": "k",
    }
    found = client_properties(given, tmp_path)
    assert (found["ssl.truststore.type"], found["ssl.keystore.type"]) == ("PKCS12", "PEM")
