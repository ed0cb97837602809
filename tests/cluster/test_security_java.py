"""TLS and SASL with Kafka's own tools: console clients, and kafka-configs for SCRAM users.

With ISTHMUS_SLOW=1 all of it, else the shortest way through.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.apache_kafka import kafka_tool
from tests.support.secure_side import SCRAM_MODULE, SecureSide, secure_side
from tests.support.slow import slow
from tests.support.zookeeper import fresh_chroot

pytestmark = [pytest.mark.cluster, pytest.mark.interop]
TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def side(zookeeper_server, tmp_path_factory) -> Iterator[SecureSide]:
    with secure_side("isthmus", tmp_path_factory.mktemp("secure"), fresh_chroot(zookeeper_server)) as running:
        yield running


def written(path: Path, settings: dict[str, str]) -> str:
    path.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    return str(path)


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [pytest.param("SSL", "", marks=slow("Java tools")), ("SASL_SSL", "SCRAM-SHA-512")],
)
def test_console_clients(side, tmp_path, listener, mechanism):
    config = written(tmp_path / "client.properties", side.java_client(listener, mechanism))
    address, topic = side.address(listener), f"console-{listener}"
    lines = [f"line {number}" for number in range(100)]
    kafka_tool(
        f"{TOOLS}.ConsoleProducer",
        *("--bootstrap-server", address, "--topic", topic, "--command-config", config),
        text="".join(line + "\n" for line in lines),
        timeout=150,
    )
    read = kafka_tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", address, "--topic", topic, "--command-config", config),
        *("--from-beginning", "--max-messages", str(len(lines)), "--timeout-ms", "60000"),
        timeout=150,
    )
    assert read.splitlines() == lines


@slow("Java tools")
def test_scram_users_by_kafka_configs(side, tmp_path):
    config = written(tmp_path / "admin.properties", side.java_client("SASL_PLAINTEXT", "PLAIN"))
    where = ("--bootstrap-server", side.address("SASL_PLAINTEXT"), "--command-config", config)
    user = ("--entity-type", "users", "--entity-name", "carol")
    credential = "SCRAM-SHA-256=[iterations=8192,password=first]"
    done = kafka_tool("kafka.admin.ConfigCommand", *where, "--alter", "--add-config", credential, *user)
    assert "Completed updating config for user carol" in done
    described = kafka_tool("kafka.admin.ConfigCommand", *where, "--describe", *user)
    assert (
        "SCRAM credential configs for user-principal 'carol' are SCRAM-SHA-256=iterations=8192" in described
    )
    jaas = f'{SCRAM_MODULE} required username="carol" password="first";'
    carol = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": jaas,
    }
    listed = kafka_tool(
        f"{TOOLS}.TopicCommand",
        *("--bootstrap-server", side.address("SASL_PLAINTEXT"), "--list"),
        *("--command-config", written(tmp_path / "carol.properties", carol)),
    )
    assert isinstance(listed, str)
    gone = kafka_tool(
        "kafka.admin.ConfigCommand", *where, "--alter", "--delete-config", "SCRAM-SHA-256", *user
    )
    assert "Completed updating config for user carol" in gone


@slow("Java tools")
def test_a_wrong_password_is_named(side, tmp_path):
    config = side.java_client("SASL_SSL", "SCRAM-SHA-256", "wrong")
    with pytest.raises(AssertionError, match="invalid credentials with SASL mechanism SCRAM-SHA-256"):
        kafka_tool(
            f"{TOOLS}.TopicCommand",
            *("--bootstrap-server", side.address("SASL_SSL"), "--list"),
            *("--command-config", written(tmp_path / "wrong.properties", config)),
        )
