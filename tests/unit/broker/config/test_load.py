"""Settings from texts: values, every mistake at once, and what Kafka knows but this broker does not."""

import logging

import pytest

from broker.config import BrokerConfig, ConfigError, load, read_properties


def test_defaults_are_kafkas():
    config = load({})
    assert config.num_partitions == 1
    assert config.auto_create_topics_enable is True
    assert config.socket_request_max_bytes == 104_857_600
    assert config.zookeeper_session_timeout_ms == 18_000
    assert config.topic_defaults.segment_bytes == 1_073_741_824
    assert config.topic_defaults.retention_ms == 7 * 24 * 3_600_000


def test_values_are_parsed_as_kafka_parses_them():
    config = load(
        {
            "num.partitions": " 6 ",
            "auto.create.topics.enable": "FALSE",
            "log.dirs": "/a , /b",
            "broker.rack": "east",
            "log.cleaner.io.max.bytes.per.second": "1.5E6",
        }
    )
    assert (config.num_partitions, config.auto_create_topics_enable) == (6, False)
    assert config.data_directories == ("/a", "/b")
    assert (config.broker_rack, config.log_cleaner_io_max_bytes_per_second) == ("east", 1_500_000.0)


def test_every_mistake_is_named_at_once_with_its_place():
    with pytest.raises(ConfigError) as caught:
        load(
            {"num.partition": "3", "num.partitions": "0", "auto.create.topics.enable": "yes"},
            {"num.partition": "server.properties:7"},
        )
    assert caught.value.errors == (
        "server.properties:7: num.partition: unknown setting; did you mean num.partitions?",
        "num.partitions: must be at least 1, not 0",
        "auto.create.topics.enable: must be true or false, not 'yes'",
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.partitions", "2147483648"),
        ("offsets.topic.replication.factor", "40000"),
        ("num.partitions", "1.5"),
    ],
)
def test_numbers_must_fit_their_java_type(name, text):
    with pytest.raises(ConfigError, match=name):
        load({name: text})


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("process.roles", "zookeeper.connect"),
        ("ssl.cipher.suites", "not offered"),
        ("sasl.kerberos.service.name", "not offered"),
        ("authorizer.class.name", "no authorizer yet"),
        ("remote.log.storage.system.enable", "tiered storage"),
    ],
)
def test_settings_whose_promise_is_not_kept_are_refused(name, why):
    with pytest.raises(ConfigError, match=why):
        load({name: "x"})


def test_settings_without_effect_are_accepted_and_said(caplog):
    with caplog.at_level(logging.WARNING, "isthmus.broker"):
        load({"num.io.threads": "16"})
    assert "num.io.threads has no effect" in caplog.text


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"listeners": "PLAINTEXT://host"}, "is not a listener"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2"}, "names a listener twice"),
        ({"listeners": "A://a:1", "listener.security.protocol.map": "B:PLAINTEXT"}, "is not in listener"),
        ({"listeners": "SSL://a:1"}, "needs a key"),
        ({"listeners": "PLAINTEXT://:70000"}, "between 0 and 65535"),
        ({"listeners": ""}, "names no listener"),
        ({"advertised.listeners": "SSL://a:1"}, "not among the listeners"),
        ({"inter.broker.listener.name": "INTERNAL"}, "inter.broker.listener.name"),
        ({"broker.id": "1001"}, "reserved.broker.max.id"),
        ({"group.min.session.timeout.ms": "9000000"}, "must not be above"),
        ({"zookeeper.connect": "a:1,b:1/x", "zookeeper.connect.preferred": "b:1,c:1"}, "c:1 is not among"),
    ],
)  # fmt: skip
def test_contradictions_between_settings(properties, complaint):
    with pytest.raises(ConfigError, match=complaint):
        load(properties)


@pytest.mark.parametrize(
    "text", ["", "zk:x", "zk:0", "zk:70000", "zk:1,", ":2181", "zk:1 zk:2", "/root", "[::1:2181"]
)
def test_zookeeper_addresses_that_are_none(text):
    with pytest.raises(ConfigError, match=r"zookeeper\.connect: must be HOST:PORT"):
        load({"zookeeper.connect": text})


@pytest.mark.parametrize("text", ["zk", "zk:2181", "zk1:1, zk2:2/a/b", "[::1]:2181", "10.0.0.1:2181/"])
def test_zookeeper_addresses(text):
    assert load({"zookeeper.connect": text}).zookeeper_connect == text


def test_listeners():
    config = load(
        {
            "listeners": "CLIENT://0.0.0.0:9092,internal://[::1]:9093",
            "advertised.listeners": "CLIENT://kafka.example:19092,INTERNAL://[::1]:9093",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "internal",
        }
    )
    assert [str(endpoint) for endpoint in config.endpoints] == [
        "CLIENT://0.0.0.0:9092",
        "INTERNAL://[::1]:9093",
    ]
    assert config.advertised_endpoints[0].host == "kafka.example"
    assert config.inter_broker_listener == "INTERNAL"


@pytest.mark.parametrize("text", ["", " "])
def test_a_rack_has_a_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"broker\.rack: must be a name: leave the setting out"):
        load({"broker.rack": text})
    assert load({}).broker_rack is None
    assert load({"broker.rack": "a"}).broker_rack == "a"


@pytest.mark.parametrize("name", ["log.dir", "log.dirs"])
@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_log_directory_is_not_the_default_or_the_working_directory(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: must name a directory"):
        load({name: text})


@pytest.mark.parametrize(
    ("text", "why"), [("/a,,/b", "must name"), ("/a,", "must name"), ("/a,/b,/a/", "names a directory twice")]
)
def test_log_directories_between_commas(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"log.dirs: {why}"):
        load({"log.dirs": text})


def test_a_config_needs_no_texts():
    assert BrokerConfig(broker_id=3).broker_id == 3


def test_java_properties_files(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text(
        "# comment\n! comment\n\nbroker.id=5\nlog.dirs : /a\nnum.partitions 4\nlisteners=A://x:1,\\\n    B://y:2\n"
    )
    properties, origins = read_properties(path)
    assert properties == {
        "broker.id": "5",
        "log.dirs": "/a",
        "num.partitions": "4",
        "listeners": "A://x:1,B://y:2",
    }
    assert origins["listeners"] == f"{path}:7"


def test_a_missing_properties_file(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.properties: No such file"):
        read_properties(tmp_path / "none.properties")


def test_escapes_are_javas(tmp_path):
    path = tmp_path / "server.properties"
    path.write_bytes(
        b"ssl.keystore.location=/keys/a\\ b\\=c\nsasl.jaas.config=Login required \\\n"
        b'   password="x\\\\y\\u00e9\xe9" ;\n'
    )
    properties, _ = read_properties(path)
    assert properties == {
        "ssl.keystore.location": "/keys/a b=c",
        "sasl.jaas.config": 'Login required password="x\\yéé" ;',
    }
