"""Scripted brokers and a client of theirs."""

from collections.abc import AsyncIterator

import pytest

from protocol.client import ClusterClient
from tests.support.fake_cluster import FAST, FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[ClusterClient]:
    async with ClusterClient(cluster.bootstrap, retry=FAST) as client:
        yield client
