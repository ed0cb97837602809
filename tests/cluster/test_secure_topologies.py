"""A topology whose cluster lets only known users in, over TLS: the commands that take it, and what they say
when a password, a certificate or an authority is wrong. With ISTHMUS_SLOW=1 also links, copies, backups and
audits, beside a broker of ours and beside Apache Kafka.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from isthmus.cli import app
from protocol.client.tls import TlsSettings, server_context
from tests.support.broker import BrokerProcess
from tests.support.certificates import Authority
from tests.support.s3 import S3Server
from tests.support.secure_side import KAFKA, PASSWORDS, SecureSide, secure_side
from tests.support.slow import slow
from tests.support.waiting import wait_until
from tests.support.zookeeper import fresh_chroot

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
COUNT = 200
TOPICS = {"declared": {"partitions": 2}}


@pytest.fixture(scope="module")
def side(zookeeper_server, tmp_path_factory) -> Iterator[SecureSide]:
    with secure_side("isthmus", tmp_path_factory.mktemp("secure"), fresh_chroot(zookeeper_server)) as running:
        yield running


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOB_PASSWORD", PASSWORDS["bob"])


def bob(side: SecureSide) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "bob",
        "sasl.password": "${env:BOB_PASSWORD}",
        "ssl.truststore.location": str(side.authority.certificate_file),
    }


def written(folder: Path, address: str, client: Mapping[str, str], west: str, **more: object) -> Path:
    """A topology of `east` at this address, and `west`."""
    file = folder / "topology.yaml"
    content = {
        "version": 1,
        "name": "secure",
        "data_directory": str(folder / "data"),
        "datacenters": {"here": {}},
        "clusters": {
            "east": {
                "datacenter": "here",
                "bootstrap_servers": address,
                "client": dict(client),
                "topics": TOPICS,
            },
            "west": {"datacenter": "here", "bootstrap_servers": west},
        },
        "links": {"east->west": {"topics": ["orders.*"], "groups": ["reader"]}},
        **more,
    }
    file.write_text(json.dumps(content))
    return file


def said(*words: object, code: int = 0) -> str:
    """What a command writes; it must end with this code."""
    texts = [str(word) for word in words]
    with patch.object(sys, "argv", ["isthmus", *texts]):  # by its first word a command is loaded
        done = CliRunner().invoke(app, texts, catch_exceptions=False)
    assert done.exit_code == code, done.output
    assert PASSWORDS["bob"] not in done.output
    return done.output


def test_commands_are_let_in_as_the_topology_says(
    side: SecureSide, broker: BrokerProcess, tmp_path: Path
) -> None:
    file = written(tmp_path, side.address("SASL_SSL"), bob(side), broker.bootstrap)
    here = ("--cluster", "east", "--topology", file)
    assert "declared" in said("topology", "plan", file, code=3)
    said("topology", "apply", file, "--yes")
    said("topics", "create", "orders", *here)
    listed = said("topics", "list", *here)
    assert "declared" in listed
    assert "orders" in listed
    _produce(side, "orders", 3)
    assert "value 2" in said("consume", "orders", "--from-beginning", "--max", "3", *here)
    said("configs", "describe", "orders", *here)
    said("groups", "list", *here)
    said("monitor", "--json", *here)
    assert "ok" in said("probe", "--for", "3", *here)
    assert "orders" in said("replicas", "compare", "--topic", "orders", "--json", *here)
    assert "0 of them errors" in said("links", "check", "east->west", "--topology", file)


def _produce(side: SecureSide, topic: str, count: int) -> None:
    producer = Producer(side.client("SASL_SSL", "SCRAM-SHA-512"))
    for number in range(count):
        producer.produce(topic, f"value {number}", key=f"key {number % 7}")
    assert producer.flush(60) == 0


# -- what is wrong


def trouble(side: SecureSide) -> dict[str, tuple[str, dict[str, str], str]]:
    """By name: listener, client settings, and a part of what is to be done about it."""
    right = bob(side)
    stranger = Authority(side.authority.directory / "stranger", "somebody else")
    return {
        "wrong password": ("SASL_SSL", right | {"sasl.password": "guess"}, "sasl.password"),
        "no such user": ("SASL_SSL", right | {"sasl.username": "eve"}, "whether the user exists"),
        "another mechanism": ("SASL_SSL", right | {"sasl.mechanism": "PLAIN"}, "sasl.mechanism"),
        "unknown authority": (
            "SASL_SSL",
            right | {"ssl.truststore.location": str(stranger.certificate_file)},
            "ssl.truststore.location",
        ),
        "no client certificate": (
            "SSL",
            {"security.protocol": "SSL", "ssl.truststore.location": right["ssl.truststore.location"]},
            "ssl.keystore.location",
        ),
        "plain at a TLS listener": ("SASL_SSL", {}, "security.protocol"),
        "TLS at a plain listener": ("PLAINTEXT", right, "security.protocol"),
        "no user where one is wanted": ("SASL_PLAINTEXT", {}, "security.protocol"),
    }


@pytest.mark.parametrize(
    "what",
    [
        "wrong password",
        "no such user",
        "another mechanism",
        "unknown authority",
        "no client certificate",
        "plain at a TLS listener",
        "TLS at a plain listener",
        "no user where one is wanted",
    ],
)
def test_the_check_says_why_a_cluster_does_not_let_the_link_in(
    side: SecureSide, broker: BrokerProcess, tmp_path: Path, what: str
) -> None:
    listener, client, to_do = trouble(side)[what]
    file = written(tmp_path, side.address(listener), client, broker.bootstrap)
    output = said("links", "check", "--topology", file, "--json", code=1)
    [finding] = json.loads(output[output.index("[") :])[0]["findings"]
    assert (finding["level"], finding["check"], finding["where"]) == ("error", "connectivity", "east")
    assert to_do in finding["to_do"], finding


@pytest.mark.parametrize(
    ("names", "days", "to_do"),
    [(("elsewhere.example", "10.0.0.1"), 1, "advertised.listeners"), (("127.0.0.1",), -1, "renewed")],
)
def test_the_check_reads_the_certificate_of_the_other_side(
    broker: BrokerProcess, tmp_path: Path, names: tuple[str, ...], days: float, to_do: str
) -> None:
    authority = Authority(tmp_path)
    store = authority.store("wrong", names=names, days=days)
    client = {"security.protocol": "SSL", "ssl.truststore.location": str(authority.certificate_file)}
    with tls_listener(store) as address:
        file = written(tmp_path, address, client, broker.bootstrap)
        output = said("links", "check", "--topology", file, "--json", code=1)
    [finding] = json.loads(output[output.index("[") :])[0]["findings"]
    assert to_do in finding["to_do"], finding


@contextmanager
def tls_listener(store: Path) -> Iterator[str]:
    """Shakes hands, or tries to, and says nothing else."""
    settings = TlsSettings.from_properties({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)})
    context = server_context(settings)
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), connection:
                context.wrap_socket(connection, server_side=True).close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)


# -- everything else that reads a topology


@pytest.fixture
def empty(zookeeper_server, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A cluster that no other link of this name has copied to."""
    process = BrokerProcess(tmp_path / "empty", fresh_chroot(zookeeper_server), 1)
    process.start()
    yield process
    process.kill()


@slow("Spark, S3 and Apache Kafka")
@pytest.mark.interop
@pytest.mark.parametrize("kind", ["isthmus", KAFKA])
def test_links_copies_backups_and_audits_are_let_in(
    kind: str, empty: BrokerProcess, zookeeper_server, tmp_path: Path
) -> None:
    with (
        secure_side(kind, tmp_path / "side", fresh_chroot(zookeeper_server)) as side,
        S3Server(tmp_path) as s3,
    ):
        s3.make_bucket("vault")
        store = {"bucket": "vault", "endpoint": s3.endpoint}
        keys = {"access_key": s3.access_key, "secret_key": s3.secret_key}
        file = written(
            tmp_path,
            side.address("SASL_SSL"),
            bob(side),
            empty.bootstrap,
            object_stores={"vault": store | keys},
            backups={"nightly": {"cluster": "east", "store": "vault", "topics": ["orders"]}},
        )
        topology = ("--topology", file)
        said("topics", "create", "orders", "--cluster", "east", *topology)
        _produce(side, "orders", COUNT)
        with replicating(file):
            wait_until(lambda: _copied(file) == COUNT, "the link has copied all", bound_s=90)
            report = said("audit", "--link", "east->west", "--topic", "orders", *topology, "--json")
            assert json.loads(report[report.index("{") :])["compared"] == COUNT
        client = tmp_path / "bob.properties"
        texts = bob(side) | {"sasl.password": PASSWORDS["bob"], "ssl.truststore.type": "PEM"}
        client.write_text("".join(f"{name}={text}\n" for name, text in texts.items()))
        west = empty.bootstrap
        words = ("copy", "--topics", "orders", "--until-now", "--rename", "orders=copied")
        said(*words, "--from", side.address("SASL_SSL"), "--from-config", client, "--to", west)
        said(*words[:-1], "orders=again", "--from", "east", "--to", "west", *topology)
        said("backup", "create", "nightly", *topology)
        said("restore", "nightly", "--to", "east", "--rename", "orders=restored", *topology)
        sides = ("--backup", "nightly", "--to", "east")
        report = said("audit", *sides, "--topic", "orders", *topology, "--json")
        assert json.loads(report[report.index("{") :])["compared"] == COUNT


def _copied(file: Path) -> int:
    output = said("links", "status", "east->west", "--topology", file, "--json")
    rows = json.loads(output[output.index("{") :])["partitions"]
    return sum(row["copied"] for row in rows if row["topic"] == "orders")


@contextmanager
def replicating(file: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "isthmus", "replicate", str(file)], cwd=ROOT)
    try:
        yield
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
