"""The same admin requests to Apache Kafka and to us: every error code, every field but the texts is the same.

Each scenario of `admin_scenarios` is sent in order to both brokers, over one connection each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from protocol.client import Connection
from protocol.messages.describe_configs_request import DescribeConfigsRequest
from protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from protocol.messages.list_offsets_request import ListOffsetsRequest
from protocol.messages.metadata_request import MetadataRequest
from tests.interop.admin_scenarios import SCENARIOS, Ask
from tests.support.groups_beside_kafka import SETTINGS, both_brokers
from tests.support.zookeeper import fresh_chroot

pytestmark = [pytest.mark.interop, pytest.mark.cluster, pytest.mark.slow]

# Tiered storage is out of scope. Kafka 4 lists the first synonym of a setting only, and with its own kind of
# controller min.insync.replicas is a dynamic default of the cluster.
_NOT_COMPARED = (
    "local.retention.", "remote.", "retention.ms.synonyms", "min.insync.replicas.config_source",
)  # fmt: skip
# Texts are each broker's own; ids and who is controller depend on the cluster, not on the request.
_OWN = {"error_message", "topic_id", "cluster_id", "port", "host", "throttle_time_ms", "documentation"}
_LOOKING = (DescribeConfigsRequest, MetadataRequest, DescribeTopicPartitionsRequest, ListOffsetsRequest)
_SETTLED_S = 10.0


@pytest.fixture(scope="module")
def both(
    zookeeper_server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """(Apache Kafka, isthmus); both have the topics `t`, `page-a` and `page-b` of three partitions."""
    with both_brokers(tmp_path_factory.mktemp("broker"), fresh_chroot(zookeeper_server), SETTINGS) as pair:
        for bootstrap in pair:
            _make_pages(AdminClient({"bootstrap.servers": bootstrap}))
            _write(bootstrap)
        yield pair


def _write(bootstrap: str) -> None:
    """Ten records of one batch in partition 0 of `page-a`; the newest is not the last."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1000})
    for number, timestamp in enumerate((10, 20, 20, 90, 30, 40, 95, 95, 50, 60)):
        producer.produce("page-a", str(number), partition=0, timestamp=timestamp * 1000)
    assert producer.flush(30) == 0


def _make_pages(admin: AdminClient) -> None:
    """Topics to page through, known to the broker: Kafka answers before its own metadata has them."""
    made = admin.create_topics([NewTopic(name, 3, 1) for name in ("page-a", "page-b")])
    for future in made.values():
        future.result(30)
    deadline = time.monotonic() + 30
    while not made.keys() <= admin.list_topics(timeout=10).topics.keys():
        assert time.monotonic() < deadline, "the topics do not show up"


def fields(answer: Any) -> Any:
    """A message as what can be compared: names and values without each broker's own texts."""
    if isinstance(answer, list):
        if answer and hasattr(answer[0], "config_source"):  # the order of settings is each broker's own
            return {each.name: fields(each) for each in answer}
        if answer and hasattr(answer[0], "partition_result"):  # of all topics, in no order
            answer = sorted(answer, key=lambda result: str(result.topic))
        return [fields(each) for each in answer] or None  # Kafka tells null from empty here and there
    if hasattr(answer, "__slots__"):
        return {name: fields(getattr(answer, name)) for name in answer.__slots__ if name not in _OWN}
    return int(answer) if isinstance(answer, int) and not isinstance(answer, bool) else answer


async def connected(bootstrap: str) -> Connection:
    host, _, port = bootstrap.partition(":")
    return await Connection.open(host, int(port))


async def compare(kafka: Connection, ours: Connection, ask: Ask) -> list[str]:
    """Where the answers differ. Kafka may show a change a moment after it has confirmed it: look again."""
    request, version = ask
    deadline = time.monotonic() + _SETTLED_S
    while True:
        one = fields(await kafka.send(request, version, timeout_s=30))
        other = fields(await ours.send(request, version, timeout_s=30))
        found = [
            place
            for place in differences(one, other)
            if not any(f".configs.{name}" in place for name in _NOT_COMPARED)
        ]
        if not found or not isinstance(request, _LOOKING) or time.monotonic() > deadline:
            return [f"{type(request).__name__} v{version} {place}" for place in found]
        await asyncio.sleep(0.05)


def differences(kafka: Any, ours: Any, where: str = "") -> Iterator[str]:
    """The places where two answers differ."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for key in [*kafka, *(key for key in ours if key not in kafka)]:
            yield from differences(kafka.get(key, "absent"), ours.get(key, "absent"), f"{where}.{key}")
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for number, (one, other) in enumerate(zip(kafka, ours, strict=True)):
            yield from differences(one, other, f"{where}[{number}]")
    elif kafka != ours:
        yield f"{where}: Kafka {kafka!r}, ours {ours!r}"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_admin_requests(both: tuple[str, str], scenario: Any) -> None:
    kafka, ours = [await connected(bootstrap) for bootstrap in both]
    try:
        different = [
            f"{number} {place}"
            for number, ask in enumerate(scenario())
            for place in await compare(kafka, ours, ask)
        ]
    finally:
        await kafka.close()
        await ours.close()
    assert not different, "\n".join(different)
