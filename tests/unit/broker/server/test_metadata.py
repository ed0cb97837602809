"""Metadata: which topics an answer names, in every version, and what asking for a missing one does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.api_versions_request import ApiVersionsRequest
from protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from protocol.types import ZERO_UUID, new_topic_id
from tests.support.lone_broker import BROKER_ID
from tests.support.served import Served, served

VERSIONS = range(13)
NOT_ASKED = -2147483648


def by_name(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


@pytest.mark.parametrize("version", VERSIONS)
async def test_all_some_or_no_topics(node: Served, version: int) -> None:
    node.topics.create("a", 2)
    node.topics.create("b")
    everything = await node.connection.send(MetadataRequest(topics=[] if version == 0 else None), version)
    assert {topic.name: len(topic.partitions) for topic in everything.topics} == {"a": 2, "b": 1}
    assert [(b.node_id, b.host, b.port) for b in everything.brokers] == [(BROKER_ID, "127.0.0.1", node.port)]
    some = await node.connection.send(MetadataRequest(topics=by_name("b")), version)
    assert [topic.name for topic in some.topics] == ["b"]
    if version >= 1:
        none = await node.connection.send(MetadataRequest(topics=[]), version)
        assert none.topics == []
        assert (none.controller_id, none.brokers[0].rack) == (BROKER_ID, "here")
    if version >= 2:
        assert some.cluster_id == "lone-cluster"
    if version >= 7:
        assert some.topics[0].partitions[0].leader_epoch == 0
    if version >= 8:
        assert some.topics[0].topic_authorized_operations == NOT_ASKED
    if version >= 10:
        assert some.topics[0].topic_id == node.broker.metadata.topic_id("b") != ZERO_UUID


@pytest.mark.parametrize("version", VERSIONS)
async def test_asking_for_a_missing_topic_makes_it_where_allowed(node: Served, version: int) -> None:
    if version >= 4:
        request = MetadataRequest(topics=by_name("new"), allow_auto_topic_creation=False)
        answer = await node.connection.send(request, version)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert node.broker.metadata.topic("new") is None
    answer = await node.connection.send(MetadataRequest(topics=by_name("new")), version)
    assert (answer.topics[0].error_code, answer.topics[0].name) == (ErrorCode.NONE, "new")
    assert answer.topics[0].partitions[0].leader_id == BROKER_ID


async def test_a_name_that_cannot_be_is_refused_beside_one_that_can(node: Served) -> None:
    answer = await node.connection.send(MetadataRequest(topics=by_name("no/good", "good")), 9)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("no/good", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("good", ErrorCode.NONE),
    ]


async def test_auto_create_can_be_switched_off(tmp_path: Path) -> None:
    async with served(tmp_path / "data", auto_create_topics_enable="false") as node:
        answer = await node.connection.send(MetadataRequest(topics=by_name("new")), 9)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_topics_by_id_from_version_12(node: Served) -> None:
    known, unknown = node.topics.create("t"), new_topic_id()
    request = MetadataRequest(
        topics=[
            MetadataRequestTopic(topic_id=known, name=None),
            MetadataRequestTopic(topic_id=unknown, name=None),
        ]
    )
    answer = await node.connection.send(request, 12)
    assert [(topic.error_code, topic.name, topic.topic_id) for topic in answer.topics] == [
        (ErrorCode.NONE, "t", known),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown),
    ]
    early = await node.connection.send(request, 10)
    assert {topic.error_code for topic in early.topics} == {ErrorCode.INVALID_REQUEST}


async def test_a_partition_without_a_living_leader_says_so(node: Served) -> None:
    node.topics.create("t", leader=2)
    answer = await node.connection.send(MetadataRequest(topics=by_name("t")), 9)
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert partition.offline_replicas == [2]


async def test_authorized_operations_when_asked(node: Served) -> None:
    node.topics.create("t")
    request = MetadataRequest(
        topics=by_name("t"),
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer = await node.connection.send(request, 10)
    assert answer.cluster_authorized_operations > 0
    assert answer.topics[0].topic_authorized_operations > 0


async def test_a_broker_that_has_not_joined_yet_lets_clients_wait(node: Served) -> None:
    node.broker.metadata.brokers = {}
    async with node.another() as client:
        asked = asyncio.create_task(client.send(MetadataRequest(topics=[]), 12))
        other = await node.connection.send(ApiVersionsRequest(), 0)  # what needs no cluster is answered
        assert other.error_code == ErrorCode.NONE
        await asyncio.sleep(0.05)
        assert not asked.done()
        node.topics.announce_broker(node.port)
        answer = await asyncio.wait_for(asked, 5)
    assert [broker.node_id for broker in answer.brokers] == [BROKER_ID]


async def test_a_topic_that_is_asked_for_twice_is_answered_once(node: Served) -> None:
    node.topics.create("t")
    answer = await node.connection.send(MetadataRequest(topics=by_name(*["t", "u"] * 1000)), 9)
    assert [topic.name for topic in answer.topics] == ["t", "u"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_kept_answers_follow_every_change(node: Served, version: int) -> None:
    """Each topic's bytes are kept: a change of the topic or of the living brokers must show at once."""
    node.topics.create("a", 2)
    node.topics.create("b")
    request = MetadataRequest(topics=by_name("a"))

    async def leaders() -> list[int]:
        answer = await node.connection.send(request, version)
        return [partition.leader_id for partition in answer.topics[0].partitions]

    assert await leaders() == await leaders() == [BROKER_ID] * 2
    cache = node.broker.metadata
    (kept,) = cache.topics["a"].encoded.values()
    await leaders()
    assert next(iter(cache.topics["a"].encoded.values())) is kept
    brokers = dict(cache.brokers)
    cache.brokers.clear()
    cache.brokers_generation += 1
    cache.brokers[9] = next(iter(brokers.values()))._replace(broker_id=9)
    assert await leaders() == [-1, -1]
    cache.brokers.clear()
    cache.brokers.update(brokers)
    cache.brokers_generation += 1
    assert await leaders() == [BROKER_ID] * 2
    node.topics.delete("a")
    node.topics.create("a", 3)
    assert await leaders() == [BROKER_ID] * 3
    asked = MetadataRequest(topics=by_name("a", "b"), include_topic_authorized_operations=version >= 8)
    both = await node.connection.send(asked, version)
    assert [topic.name for topic in both.topics] == ["a", "b"]
    if version >= 8:
        assert all(topic.topic_authorized_operations != NOT_ASKED for topic in both.topics)
        again = await node.connection.send(request, version)
        assert again.topics[0].topic_authorized_operations == NOT_ASKED
