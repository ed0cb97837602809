"""A broker with every kind of listener, ours or Apache Kafka set alike, and the settings of its clients.

Users: `ada` by PLAIN, `bob` by both SCRAM mechanisms (made through AlterUserScramCredentials), `admin` for
the brokers. The certificates are those of `tests.support.certificates`.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.apache_kafka import kafka_script
from tests.support.broker import BrokerProcess
from tests.support.certificates import Authority

KAFKA = "kafka"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORDS: Mapping[str, str] = {"ada": "s3cr=t,; and so on", "bob": "bob's own"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENERS = ("SASL_PLAINTEXT", "SSL", "SASL_SSL", "PLAINTEXT")  # the last one's port is a BrokerProcess's
FLAWED = ("EXPIRED", "MISNAMED")
"""Listeners with SASL_SSL whose certificate is over, or for another address."""


@dataclass
class SecureSide:
    ports: Mapping[str, int]
    authority: Authority
    store: Path
    """Key and certificate of a client."""
    broker: BrokerProcess | None
    """None for Apache Kafka."""

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def client(self, listener: str, mechanism: str = "", password: str | None = None) -> dict[str, str]:
        """Settings as librdkafka takes them; our own clients know them too."""
        settings = {"bootstrap.servers": self.address(listener), "security.protocol": listener}
        if listener.endswith("SSL"):
            settings["ssl.ca.location"] = str(self.authority.certificate_file)
        if listener == "SSL":
            settings |= {"ssl.certificate.location": str(self.store), "ssl.key.location": str(self.store)}
        if mechanism:
            user = "ada" if mechanism == "PLAIN" else "bob"
            settings |= {
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password": PASSWORDS[user] if password is None else password,
            }
        return settings

    def java_client(self, listener: str, mechanism: str = "", password: str | None = None) -> dict[str, str]:
        """The same as Java's clients take them."""
        settings = {"security.protocol": listener}
        if listener.endswith("SSL"):
            trusted = str(self.authority.certificate_file)
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": trusted}
        if listener == "SSL":
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.store)}
        if mechanism:
            user = "ada" if mechanism == "PLAIN" else "bob"
            secret = PASSWORDS[user] if password is None else password
            module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
            jaas = f'{module} required username="{user}" password="{secret}";'
            settings |= {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
        return settings


def security_settings(
    store: Path, authority: Authority, flawed: Mapping[str, Path] | None = None
) -> dict[str, str]:
    """Of the broker, under Kafka's names. `flawed`: stores of more listeners, see `FLAWED`."""
    flawed = flawed or {}
    plain = f'{PLAIN_MODULE} required username="admin" password="admin\'s" user_admin="admin\'s"'
    plain += f' user_ada="{PASSWORDS["ada"]}";'
    scram = f"{SCRAM_MODULE} required;"
    jaas = {
        f"listener.name.{listener}.{mechanism}.sasl.jaas.config": plain if mechanism == "plain" else scram
        for listener in ("sasl_plaintext", "sasl_ssl", *map(str.lower, flawed))
        for mechanism in ("plain", "scram-sha-256", "scram-sha-512")
    }
    return {
        **jaas,
        **{f"listener.name.{name.lower()}.ssl.keystore.location": str(path) for name, path in flawed.items()},
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate_file),
        "listener.name.ssl.ssl.client.auth": "required",
    }


@contextmanager
def secure_side(
    kind: str,
    directory: Path,
    zookeeper: str,
    settings: Mapping[str, str] | None = None,
    *,
    flawed: bool = False,
) -> Iterator[SecureSide]:
    """A running broker, ended afterwards. `settings` are more of the broker's; `flawed`: see `FLAWED`."""
    authority = Authority(directory / "certificates")
    stores = {}
    if flawed:
        stores["EXPIRED"] = authority.store("expired", days=-1)
        stores["MISNAMED"] = authority.store("misnamed", names=("elsewhere.example", "10.0.0.1"))
    names = (*FLAWED, *LISTENERS) if flawed else LISTENERS
    texts = {
        **security_settings(authority.store("broker"), authority, stores),
        "listener.security.protocol.map": ",".join(
            f"{name}:{'SASL_SSL' if name in stores else name}" for name in names
        ),
        **(settings or {}),
    }
    store = authority.store("client")
    with ExitStack() as stack:
        if kind == KAFKA:
            ports = stack.enter_context(kafka_listening(names, texts))
            side = SecureSide(ports, authority, store, None)
        else:
            where = {"listeners": ",".join(f"{name}://127.0.0.1:0" for name in names)}
            broker = BrokerProcess(directory, zookeeper, 1, settings={**where, **texts})
            stack.callback(broker.kill)
            broker.start()
            side = SecureSide(listening(broker), authority, store, broker)
        _add_bob(side)
        yield side


def listening(broker: BrokerProcess) -> dict[str, int]:
    """Port by listener, as the ready line says."""
    ready = re.search(r" ready: (\S+) ", broker.output)
    assert ready is not None
    addresses = [item.partition("://") for item in ready[1].split(",")]
    return {name: int(address.rpartition(":")[2]) for name, _, address in addresses}


@contextmanager
def kafka_listening(
    listeners: tuple[str, ...], settings: Mapping[str, str], jvm: str = ""
) -> Iterator[dict[str, int]]:
    """Ports of Apache Kafka's listeners, PLAINTEXT among them; `jvm`: options of its Java."""
    script = kafka_script()
    with ExitStack() as sockets:
        bound = [sockets.enter_context(socket.socket()) for _ in (*listeners, "CONTROLLER")]
        for each in bound:
            each.bind(("127.0.0.1", 0))
        numbers = [each.getsockname()[1] for each in bound]
    ports = dict(zip(listeners, numbers, strict=False))
    where = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    protocols = settings["listener.security.protocol.map"]
    texts = {
        **settings,
        "listeners": f"{where},CONTROLLER://127.0.0.1:{numbers[-1]}",
        "advertised.listeners": where,
        "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
    }
    name = f"secure-{os.getpid()}-{ports['PLAINTEXT']}"
    environment = {
        **os.environ,
        "INTEROP_CONTROLLER_PORT": str(numbers[-1]),
        "INTEROP_WAIT_S": "240",
        "INTEROP_BROKER_HEAP": "-Xms128m -Xmx512m",
        "INTEROP_JVM_OPTS": jvm,
    }
    pairs = [f"{key}={text}" for key, text in texts.items()]
    try:
        start = [str(script), "start", name, str(ports["PLAINTEXT"]), *pairs]
        subprocess.run(start, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=300)
        yield ports
    finally:
        subprocess.run([str(script), "wipe", name], check=True, stdout=subprocess.DEVNULL, timeout=60)


def _add_bob(side: SecureSide) -> None:
    """One request for each mechanism: Kafka's newer brokers take one change of a user at once."""
    admin = AdminClient({"bootstrap.servers": side.address("PLAINTEXT")})
    for mechanism, iterations in ((ScramMechanism.SCRAM_SHA_256, 8192), (ScramMechanism.SCRAM_SHA_512, 4096)):
        info = ScramCredentialInfo(mechanism, iterations)
        change = UserScramCredentialUpsertion("bob", info, PASSWORDS["bob"].encode())
        admin.alter_user_scram_credentials([change])["bob"].result(30)
