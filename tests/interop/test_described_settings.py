"""DescribeConfigs beside Apache Kafka: every setting both have is shown alike, every difference has a reason.

Compared are value, source, type, read-only, sensitive, whether there is a text, and the synonyms in order
(KIP-226, KIP-569), for a topic and a broker, before and after settings that change while it runs. What only
one side has, or shows otherwise, is listed here with why; a difference that is not listed fails, and so does
a line of the list that is not true any more.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from broker.config.foreign import IGNORED, refused
from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.sides import KAFKA, OURS, Side, StartSide
from tests.support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.cluster]
TOPIC, BROKER = 2, 4
FIELDS: Final = ("value", "source", "type", "read_only", "sensitive", "documented", "synonyms")
Shown = dict[str, dict[str, Any]]
"""Setting -> field -> what is shown."""

STATIC: Final = {
    "log.retention.hours": "5", "log.roll.hours": "3", "log.flush.scheduler.interval.ms": "9999",
    "log.segment.bytes": "3000000", "log.cleaner.min.cleanable.ratio": "0.25", "num.partitions": "2",
}  # fmt: skip

_PLACE: Final = "names this broker's own addresses or directories"
_RESTART: Final = "needs a restart here (docs/status.md)"
OTHERWISE: Final[Mapping[tuple[str, str], str]] = {
    **{("listeners", field): _PLACE for field in ("value", "synonyms")},
    **{("advertised.listeners", field): _PLACE for field in ("value", "source", "synonyms")},
    **{("log.dirs", field): _PLACE for field in ("value", "synonyms")},
    **{
        ("listener.security.protocol.map", field): "a map: Kafka shows it in the order of its hash table"
        for field in ("value", "synonyms")
    },
    **{
        (name, "read_only"): _RESTART
        for name in (
            "listeners", "listener.security.protocol.map", "max.connections", "max.connections.per.ip",
            "max.connections.per.ip.overrides", "max.connection.creation.rate",
            "transaction.partition.verification.enable", "sasl.enabled.mechanisms",
            "sasl.mechanism.inter.broker.protocol", "ssl.client.auth", "ssl.enabled.protocols",
            "ssl.endpoint.identification.algorithm", "ssl.key.password", "ssl.keystore.certificate.chain",
            "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type",
            "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password",
            "ssl.truststore.type",
        )
    },
    ("log.dir", "type"): "a list since 4.0, a string in Kafka with ZooKeeper",
    **{
        ("min.insync.replicas", field): "Kafka writes a default for all brokers when it formats (KIP-966)"
        for field in ("source", "synonyms")
    },
    ("log.retention.hours", "value"): "Kafka forgets the text of its start once log.retention.ms is changed",
}  # fmt: skip
OURS_ALONE: Final[Mapping[str, str]] = {
    "broker.id": "named node.id with KRaft, and shown under both names",
    "controlled.shutdown.": "of Kafka with ZooKeeper",
    "leader.imbalance.per.broker.percentage": "of Kafka with ZooKeeper",
    "reserved.broker.max.id": "of Kafka with ZooKeeper",
    "zookeeper.": "of Kafka with ZooKeeper",
    "unclean.last.replica.election.enable": "our guard of last replicas (docs/decisions)",
    "follower.replication.throttled.rate": "Kafka shows it only where it is set",
    "leader.replication.throttled.rate": "Kafka shows it only where it is set",
    "producer.id.expiration.check.interval.ms": "internal in Kafka, so not shown",
}
KAFKA_ALONE: Final[Mapping[str, str]] = {
    "local.retention.": "tiered storage is not offered",
    "follower.fetch.last.tiered.": "tiered storage is not offered",
    "group.coordinator.": "the coordinator has neither threads nor protocols to choose from",
    "share.": "share groups are not offered",
    "metadata.": "KRaft",
    "initial.broker.registration.": "KRaft",
    "early.start.listeners": "KRaft",
    "controller.": "KRaft, or limits on changes of topics, which are not offered",
    "cordoned.log.dirs": "not offered",
    "log.dir.failure.timeout.ms": "of KRaft: how long a broker waits to report a failed directory",
    "add.partitions.to.txn.": "pauses between tries are not tuned this way",
    "transaction.two.phase.commit.enable": "KIP-939 is not offered",
    "alter.config.policy.": "Java classes",
    "create.topic.policy.": "Java classes",
    "client.quota.callback.": "Java classes",
    "config.providers": "Java classes",
    "security.providers": "Java classes",
    "alter.log.dirs.replication.": "moving replicas between directories is not offered",
    "quota.window.": "quotas are not offered yet",
    "replication.quota.window.": "quotas are not offered yet",
    "telemetry.max.bytes": "metrics of clients (KIP-714) are not offered",
    "socket.connection.setup.timeout.ms": "connections between brokers are not tuned this way",
}  # fmt: skip


@pytest.fixture(scope="module")
def both(start_side: StartSide) -> Iterator[tuple[Side, Side]]:
    with (
        start_side(OURS, "described", STATIC) as ours,
        start_side(KAFKA, "described", STATIC) as kafka,
    ):
        yield ours, kafka


async def shown(side: Side, kind: int, name: str) -> Shown:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    connection = await side.connect()
    try:
        answer = await connection.send(
            DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
        )
    finally:
        await connection.close()
    assert answer.results[0].error_code == 0
    return {
        entry.name: {
            "value": entry.value,
            "source": entry.config_source,
            "type": entry.config_type,
            "read_only": entry.read_only,
            "sensitive": entry.is_sensitive,
            "documented": bool(entry.documentation),
            "synonyms": [(item.name, item.value, item.source) for item in entry.synonyms],
        }
        for entry in answer.results[0].configs
    }


def differences(ours: Shown, kafkas: Shown) -> dict[tuple[str, str], str]:
    """(setting, field) -> both sides, of settings that both have."""
    return {
        (name, field): f"ours {ours[name][field]!r}, Kafka's {kafkas[name][field]!r}"
        for name in sorted(ours.keys() & kafkas.keys())
        for field in FIELDS
        if ours[name][field] != kafkas[name][field]
    }


def unexplained(names: set[str], reasons: Mapping[str, str]) -> set[str]:
    """Neither named in `reasons` (whole, or what it starts with), nor among what a start reports."""
    return {
        name
        for name in names
        if not any(name.startswith(prefix) for prefix in reasons)
        and name not in IGNORED
        and refused(name) is None
    }


async def alter(side: Side, kind: int, name: str, **settings: str) -> None:
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=text)
        for key, text in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    connection = await side.connect()
    try:
        answer = await connection.send(IncrementalAlterConfigsRequest(resources=[resource]))
    finally:
        await connection.close()
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


@pytest.mark.timeout(400)
async def test_settings_are_shown_as_kafka_shows_them(both: tuple[Side, Side]) -> None:
    found: dict[tuple[str, str], str] = {}
    alone: tuple[set[str], set[str]] = (set(), set())

    async def compare() -> None:
        for kind, name in ((TOPIC, "plain"), (TOPIC, "own"), (BROKER, "1"), (BROKER, "")):
            ours, kafkas = [await shown(side, kind, name) for side in both]
            found.update(differences(ours, kafkas))
            if name:
                alone[0].update(ours.keys() - kafkas.keys())
                alone[1].update(kafkas.keys() - ours.keys())

    own = {"retention.ms": "5000", "segment.bytes": "2000000", "cleanup.policy": "compact,delete"}
    for side in both:
        async with ClusterClient(side.bootstrap) as client:
            await client.create_topics([NewTopic("plain", 1, 1), NewTopic("own", 1, 1, configs=own)])
    await compare()
    for side in both:
        await alter(side, BROKER, "", log_retention_ms="70000", log_cleaner_threads="2")
        await alter(side, BROKER, "1", log_retention_ms="70001", log_segment_bytes="4000000")

        async def in_force(side: Side = side) -> bool:
            return bool((await shown(side, TOPIC, "plain"))["segment.bytes"]["value"] == "4000000")

        await eventually(in_force, bool, bound_s=60)
    await compare()

    assert {key: text for key, text in found.items() if key not in OTHERWISE} == {}
    assert {key for key in OTHERWISE if key not in found} == set(), "differences that are none any more"
    assert unexplained(alone[0], OURS_ALONE) == set()
    assert unexplained(alone[1], KAFKA_ALONE) == set()
    stale = {prefix for prefix in KAFKA_ALONE if not any(name.startswith(prefix) for name in alone[1])}
    assert stale == set(), "reasons for settings that we have, or that nobody has"


async def test_values_of_tools_that_parse_numbers(both: tuple[Side, Side]) -> None:
    """Whole numbers, numbers and booleans are in Java's form, so that tools of Java read them."""
    for name, entry in (await shown(both[0], BROKER, "1")).items():
        if entry["value"] is None:
            continue
        pattern = {1: "true|false", 3: r"-?\d+", 4: r"-?\d+", 5: r"-?\d+", 6: r"-?\d+\.\d+(E-?\d+)?"}
        assert re.fullmatch(pattern.get(entry["type"], ".*"), entry["value"]), name
