"""A topology whose cluster lets only known users in, over TLS: the commands that take it, and what they say
when a password, a certificate or an authority is wrong. With ISTHMUS_SLOW=1 also links, copies, backups and
audits, beside a broker of ours and beside Apache Kafka.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl as tls
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
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
PROMPT_S = 25.0
"""A command that tries for as long as a broker may be away takes 30 s; on a busy machine this is near."""
TOPICS = {"declared": {"partitions": 2}}


@pytest.fixture(scope="module")
def side(zookeeper_server, tmp_path_factory) -> Iterator[SecureSide]:
    directory = tmp_path_factory.mktemp("secure")
    with secure_side("isthmus", directory, fresh_chroot(zookeeper_server), flawed=True) as running:
        yield running


@pytest.fixture(scope="module")
def store(s3: S3Server) -> S3Server:
    """With the bucket that the topologies name."""
    s3.make_bucket("vault")
    return s3


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
    assert "0 errors among them" in said("links", "check", "east->west", "--topology", file)


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
        "TLS at a listener with users": ("SASL_PLAINTEXT", right, "security.protocol"),
        "no user where one is wanted": ("SASL_PLAINTEXT", {}, "security.protocol"),
        "expired certificate": ("EXPIRED", right, "has to be renewed"),
        "certificate of another host": ("MISNAMED", right, "does not name the address"),
    }


TROUBLES = (
    "wrong password",
    "no such user",
    "another mechanism",
    "unknown authority",
    "no client certificate",
    "plain at a TLS listener",
    "TLS at a plain listener",
    "TLS at a listener with users",
    "no user where one is wanted",
    "expired certificate",
    "certificate of another host",
)


@pytest.mark.parametrize("what", TROUBLES)
def test_the_check_says_why_a_cluster_does_not_let_the_link_in(
    side: SecureSide, broker: BrokerProcess, tmp_path: Path, what: str
) -> None:
    listener, client, to_do = trouble(side)[what]
    file = written(tmp_path, side.address(listener), client, broker.bootstrap)
    output = said("links", "check", "--topology", file, "--json", code=1)
    [finding] = json.loads(output[output.index("[") :])[0]["findings"]
    assert (finding["level"], finding["check"], finding["where"]) == ("error", "connectivity", "east")
    assert to_do in finding["to_do"], finding


COMMANDS: Mapping[str, tuple[str, ...]] = {
    "audit": ("audit", "--link", "east->west", "--topic", "orders"),
    "backup": ("backup", "create", "nightly"),
    "copy": ("copy", "--from", "east", "--to", "west", "--topics", "orders", "--until-now"),
    "monitor": ("monitor", "--json", "--cluster", "east"),
    "replicas": ("replicas", "compare", "--topic", "orders", "--cluster", "east"),
    "topics": ("topics", "list", "--cluster", "east"),
}
"""By name: what reaches `east` first."""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", ["wrong password", "unknown authority"])
def test_every_command_says_which_cluster_does_not_let_it_in_and_what_to_do(
    side: SecureSide, broker: BrokerProcess, store: S3Server, tmp_path: Path, what: str, command: str
) -> None:
    _refused(side, broker, store, tmp_path, what, command)


@pytest.mark.parametrize(
    "what", [what for what in TROUBLES if "unknown" not in what and "password" not in what]
)
def test_each_kind_of_trouble_is_told_from_the_others(
    side: SecureSide, broker: BrokerProcess, store: S3Server, tmp_path: Path, what: str
) -> None:
    _refused(side, broker, store, tmp_path, what, "backup")


def _refused(
    side: SecureSide, broker: BrokerProcess, s3: S3Server, folder: Path, what: str, command: str
) -> None:
    listener, client, to_do = trouble(side)[what]
    file = written(
        folder,
        side.address(listener),
        client,
        broker.bootstrap,
        object_stores={"vault": {"bucket": "vault", "endpoint": s3.endpoint} | _keys(s3)},
        backups={"nightly": {"cluster": "east", "store": "vault", "topics": ["orders"]}},
    )
    began = time.monotonic()
    output = said(*COMMANDS[command], "--topology", file, code=1)
    took_s = time.monotonic() - began
    protocol = client.get("security.protocol", "PLAINTEXT")
    name = "source" if command == "copy" else "east"
    assert f"{name} cannot be reached ({protocol} at {side.address(listener)}): " in output
    assert to_do in output
    assert took_s < PROMPT_S, output


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


def test_a_link_goes_on_trying_and_goes_on_once_it_is_let_in(
    broker: BrokerProcess, zookeeper_server, tmp_path: Path
) -> None:
    """It begins with a wrong password, is let in, is refused while it runs, and is let in again."""
    settings = {"connections.max.reauth.ms": "2000"}
    with secure_side("isthmus", tmp_path / "side", fresh_chroot(zookeeper_server), settings) as side:
        _produce(side, "ordersbook", 3)
        (tmp_path / "token").write_text("of REST")
        rest = {"port": 0, "keystore": str(side.authority.store("rest")), "token_file": "token"}
        file = written(tmp_path, side.address("SASL_SSL"), bob(side), broker.bootstrap, rest=rest)
        _set_password(side, "another")
        where = f"east cannot be reached (SASL_SSL at {side.address('SASL_SSL')}): "
        log = tmp_path / "link.log"
        with replicating(file, log):
            wait_until(lambda: "not ready, and goes on" in log.read_text(), "the link says so", bound_s=60)
            assert where in log.read_text()
            assert "look at sasl.username, sasl.password" in log.read_text()
            [shown] = _by_rest(side, log)
            assert (shown["state"], where in str(shown["problems"])) == ("connecting", True)
            _set_password(side, PASSWORDS["bob"])
            wait_until(lambda: _copied(file, "ordersbook") == 3, "the link is let in", bound_s=60)
            _set_password(side, "another")
            wait_until(lambda: where in _problems(file), "the status says so", bound_s=60)
            assert "look at sasl.username, sasl.password" in _problems(file)
            _set_password(side, PASSWORDS["bob"])
            _produce(side, "ordersbook", 2)
            wait_until(lambda: _copied(file, "ordersbook") == 5, "the link is let in again", bound_s=60)
            wait_until(lambda: where not in _problems(file), "the status is clear again", bound_s=60)


def _by_rest(side: SecureSide, log: Path) -> list[dict[str, Any]]:
    """What REST of the link says, over TLS; where it is stands in the line that says how the link is."""
    found = re.search(r"REST (https://\S+)/", log.read_text())
    assert found is not None, log.read_text()
    request = urllib.request.Request(f"{found[1]}/v1/links", headers={"Authorization": "Bearer of REST"})
    context = tls.create_default_context(cafile=str(side.authority.certificate_file))
    with urllib.request.urlopen(request, context=context, timeout=30) as answer:
        links: list[dict[str, Any]] = json.loads(answer.read())
        return links


def _set_password(side: SecureSide, password: str) -> None:
    admin = AdminClient({"bootstrap.servers": side.address("PLAINTEXT")})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion("bob", info, password.encode())
    admin.alter_user_scram_credentials([change])["bob"].result(30)


def _problems(file: Path) -> str:
    output = said("links", "status", "east->west", "--topology", file, "--json")
    return str([one["problems"] for one in json.loads(output[output.index("{") :])["workers"]])


@slow("Apache Kafka, and everything that waits for it")
@pytest.mark.interop
def test_apache_kafka_that_does_not_let_in_is_told_of_as_clearly(
    broker: BrokerProcess, store: S3Server, zookeeper_server, tmp_path: Path
) -> None:
    with secure_side(KAFKA, tmp_path / "side", fresh_chroot(zookeeper_server), flawed=True) as side:
        for what in TROUBLES:
            for command in COMMANDS:
                folder = tmp_path / f"{what} {command}".replace(" ", "-")
                folder.mkdir()
                _refused(side, broker, store, folder, what, command)


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
        file = written(
            tmp_path,
            side.address("SASL_SSL"),
            bob(side),
            empty.bootstrap,
            object_stores={"vault": store | _keys(s3)},
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


def _keys(s3: S3Server) -> dict[str, str]:
    return {"access_key": s3.access_key, "secret_key": s3.secret_key}


def _copied(file: Path, topic: str = "orders") -> int:
    output = said("links", "status", "east->west", "--topology", file, "--json")
    rows = json.loads(output[output.index("{") :])["partitions"]
    return sum(row["copied"] for row in rows if row["topic"] == topic)


@contextmanager
def replicating(file: Path, log: Path | None = None) -> Iterator[None]:
    """`log` is where it speaks."""
    command = [sys.executable, "-m", "isthmus", "replicate", str(file)]
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("wb")) if log is not None else None
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        try:
            yield
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
