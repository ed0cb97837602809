"""What a half-dead source says of its ends: what answers counts, and holds up nothing. The source is brokers
that answer by script, asked by a real client.
"""

import asyncio

import pytest

from protocol.api import ApiKey
from protocol.client import ClusterClient
from protocol.errors import ProtocolError
from protocol.types import TopicPartition
from replicator.mirrors import assessing
from replicator.mirrors.lineage import MirrorSource
from tests.support.fake_cluster import FakeCluster, listed

ID, OTHER = b"\1" * 16, b"\2" * 16


def mirror(of: bytes = ID) -> MirrorSource:
    return MirrorSource.of("east->west", "fake", of)


@pytest.fixture
def half_dead(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Broker 2 takes requests and says nothing; `orders-1` has no leader."""
    monkeypatch.setattr(assessing, "ASK_S", 3.0)
    cluster = FakeCluster(2)
    cluster.topic("orders", [1, -1, 2, 1], topic_id=ID)
    cluster.topic("again", [1], topic_id=OTHER)

    async def silent() -> None:
        await asyncio.sleep(30)

    cluster.on(
        ApiKey.LIST_OFFSETS,
        lambda node, request: silent() if node == 2 else listed(request),
    )
    return cluster


async def test_partitions_that_do_not_answer_are_left_out(half_dead: FakeCluster):
    mirrors = {"orders": mirror(), "again": mirror(), "gone": mirror()}
    tps = [*(TopicPartition("orders", index) for index in range(4))]
    tps += [TopicPartition("again", 0), TopicPartition("gone", 0)]
    async with half_dead, ClusterClient(half_dead.bootstrap) as source:
        assert await assessing.ends_that_answer(source, mirrors, tps) == {
            TopicPartition("orders", index): 100 + index for index in (0, 3)
        }


async def test_who_needs_all_ends_is_told_so(half_dead: FakeCluster):
    async with half_dead, ClusterClient(half_dead.bootstrap) as source:
        with pytest.raises(ProtocolError, match="orders-1"):
            await assessing.source_ends(source, [TopicPartition("orders", 0), TopicPartition("orders", 1)])
        assessing.ASK_S = 0.1  # the fixture puts it back
        with pytest.raises(assessing.SwitchRefused, match=r"0\.3 s .* isthmus mirrors failover"):
            await assessing.source_ends(source, [TopicPartition("orders", 2)])
