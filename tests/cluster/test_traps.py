"""What clients of the field stumble over: the broker as they look at it before they use it.

The letters are those of the table in tests/cases/README.md, which names the other tests of this kind too.
"""

from __future__ import annotations

import asyncio
import struct
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.api import ApiKey
from protocol.client.connection import Connection
from protocol.codec.schema import version_range
from protocol.messages.api_versions_request import ApiVersionsRequest
from protocol.messages.api_versions_response import ApiVersionsResponse
from protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.support.broker import BrokerProcess
from tools.generate_messages import definitions

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its own files
    from kafka import KafkaProducer

pytestmark = pytest.mark.cluster

BOUND_S = 40.0
Ranges = dict[int, tuple[int, int]]

#: What clients speak that negotiate within limits: (key, lowest, highest).
LIBRDKAFKA_2_15 = {
    0: (0, 10), 1: (0, 16), 2: (0, 7), 3: (0, 13), 8: (0, 9), 9: (0, 9), 10: (0, 2), 11: (0, 5), 12: (0, 3),
    13: (0, 1), 14: (0, 3), 15: (0, 5), 16: (0, 5), 18: (0, 3), 19: (0, 4), 20: (0, 4), 21: (0, 2),
    22: (0, 4), 23: (2, 2), 32: (0, 1), 33: (0, 2), 37: (0, 2), 42: (0, 2), 44: (0, 1), 47: (0, 0),
}  # fmt: skip
AIOKAFKA_0_14 = {
    0: (0, 7), 1: (1, 11), 2: (0, 3), 3: (0, 5), 8: (2, 3), 9: (1, 3), 10: (0, 1), 11: (0, 5), 12: (0, 1),
    13: (0, 1), 14: (0, 3), 15: (0, 3), 16: (0, 1), 18: (0, 2), 19: (0, 3), 20: (0, 3), 22: (0, 0),
    32: (0, 2),
}  # fmt: skip
KAFKAJS_2_2_4 = {
    0: (0, 7), 1: (0, 11), 2: (0, 3), 3: (0, 6), 8: (0, 5), 9: (1, 4), 10: (0, 2), 11: (0, 5), 12: (0, 3),
    13: (0, 3), 14: (0, 3), 15: (0, 2), 16: (0, 2), 18: (0, 2), 19: (0, 3), 20: (0, 1), 21: (0, 1),
    22: (0, 1), 32: (0, 2), 33: (0, 1), 37: (0, 1), 42: (0, 1),
}  # fmt: skip


def java_4() -> Ranges:
    """The request versions of Kafka 4's own definitions, as kafka-python bundles them."""
    spec = find_spec("kafka")
    assert spec is not None
    assert spec.origin is not None
    found = definitions([Path(spec.origin).parent / "protocol/schemas/resources"])
    ranges = {
        each["apiKey"]: version_range(each["validVersions"])
        for each in found.values()
        if each["type"] == "request"
    }
    return {key: (versions[0], versions[-1]) for key, versions in ranges.items() if versions}


async def said(broker: BrokerProcess, version: int = 3) -> ApiVersionsResponse:
    connection = await Connection.open("127.0.0.1", broker.port)
    try:
        hello = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
        answer = await connection.send(hello, version)
    finally:
        await connection.close()
    assert isinstance(answer, ApiVersionsResponse)
    return answer


async def advertised(broker: BrokerProcess) -> Ranges:
    return {each.api_key: (each.min_version, each.max_version) for each in (await said(broker)).api_keys}


async def test_a_and_b_old_librdkafka_reads_version_0_as_a_sign(broker: BrokerProcess) -> None:
    """Produce 0 means "may compress", JoinGroup 0 "knows balanced consumers"."""
    ranges = await advertised(broker)
    assert ranges[ApiKey.PRODUCE][0] == 0
    assert ranges[ApiKey.JOIN_GROUP][0] == 0


@pytest.mark.parametrize(
    "client", [java_4(), LIBRDKAFKA_2_15, AIOKAFKA_0_14, KAFKAJS_2_2_4], ids=["java", "rdk", "aio", "js"]
)
async def test_c_every_advertised_api_has_a_version_in_common(broker: BrokerProcess, client: Ranges) -> None:
    for key, (lowest, highest) in (await advertised(broker)).items():
        if key in client:
            assert max(lowest, client[key][0]) <= min(highest, client[key][1]), ApiKey(key)


async def test_f_unknown_tagged_fields_are_skipped(broker: BrokerProcess) -> None:
    """In the header, in the body and in a struct of the body; and no default is written into a tag."""
    tags = b"\x02" + b"\x63\x03abc" + b"\x64\x00"  # 99: "abc", 100: nothing
    header = struct.pack(">hhih", ApiKey.METADATA, 12, 77, 1) + b"c" + tags
    topic = bytes(16) + b"\x08nowhere" + tags
    body = b"\x02" + topic + b"\x00\x00" + tags
    frame = header + body
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(struct.pack(">i", len(frame)) + frame)
    async with asyncio.timeout(BOUND_S):
        size = struct.unpack(">i", await reader.readexactly(4))[0]
        answer = await reader.readexactly(size)
    writer.close()
    await writer.wait_closed()
    assert struct.unpack_from(">i", answer)[0] == 77


async def test_g_topics_have_ids_from_the_first_day(broker: BrokerProcess) -> None:
    """Fetch 13+ knows ids only; internal topics have them too."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("trap-g", b"x")
    assert producer.flush(BOUND_S) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "trap-g"})
    consumer.subscribe(["trap-g"])
    consumer.poll(1)
    consumer.close()
    connection = await Connection.open("127.0.0.1", broker.port)
    names = [MetadataRequestTopic(name=name) for name in ("trap-g", "__consumer_offsets")]
    first, again = [
        {t.name: t.topic_id for t in (await connection.send(MetadataRequest(topics=names), v)).topics}
        for v in (10, 12)
    ]
    await connection.close()
    assert len(set(first.values()) - {bytes(16)}) == 2
    assert first == again
    ranges = await advertised(broker)
    assert ranges[ApiKey.FETCH][1] >= 13
    assert ranges[ApiKey.PRODUCE][1] <= 12, "version 13 knows ids only and no test has looked at it"


@pytest.mark.parametrize("version", [3, 4])
async def test_h_transactions_of_version_2_only_where_the_feature_is_finalized(
    broker: BrokerProcess, version: int
) -> None:
    answer = await said(broker, version)
    features = {each.name: each.max_version_level for each in answer.finalized_features}
    if features.get("transaction.version", 0) < 2:
        assert (await advertised(broker))[ApiKey.PRODUCE][1] <= 11
    assert all(each.min_version > 0 for each in answer.supported_features if version == 3)


async def test_i_and_j_no_kip_848_groups_no_telemetry_no_share_groups(broker: BrokerProcess) -> None:
    assert not {68, 69, 71, 72, *range(76, 93)} & set(await advertised(broker))


@pytest.mark.parametrize("given", [(0, 11), (2, 0), (4, 1)])
def test_p_a_version_that_the_user_gives_is_lowered_to_what_we_have(
    broker: BrokerProcess, given: tuple[int, int]
) -> None:
    topic = f"trap-p-{given[0]}-{given[1]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(BOUND_S)
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        api_version=given,
        compression_type="gzip",
        enable_idempotence=False,
    )
    assert producer.send(topic, b"x" * 1000).get(BOUND_S).offset == 0
    producer.close()
