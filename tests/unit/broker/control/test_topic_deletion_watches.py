"""Deleting topics leaves nothing behind in the ZooKeeper client, however many come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from broker.config import TopicConfig, load
from broker.control import paths
from broker.control.config_store import ConfigStore
from broker.control.identity import prepare_tree
from broker.control.metadata_cache import MetadataCache
from broker.control.nodes import TopicNode
from broker.control.topic_admin import TopicAdmin
from broker.control.zookeeper import ZooKeeper
from protocol.types import new_topic_id

pytestmark = pytest.mark.cluster
TOPICS = 20
BOUND_S = 30.0


class Forgetful:
    """Metadata in which every deletion has been carried out already."""

    def topic_id(self, name: str) -> bytes | None:
        return None

    async def wait_until(self, condition: Callable[[], bool], wait_s: float) -> bool:
        return condition()


async def test_no_watch_stays_behind_for_a_deleted_topic(zookeeper: str) -> None:
    client = await ZooKeeper.connect(zookeeper, session_timeout_ms=6000, wait_ms=10_000)
    try:
        await prepare_tree(client)
        config = load({"zookeeper.connect": zookeeper, "broker.id": "1"})
        topics = TopicAdmin(client, config, cast(ConfigStore, None), cast(MetadataCache, Forgetful()))
        for number in range(TOPICS):
            name = f"passing-{number}"
            await client.create(paths.topic(name), TopicNode(new_topic_id(), {0: (1,)}).encode())
            deleting = asyncio.create_task(topics.delete_topic(name, wait_s=BOUND_S))
            async with asyncio.timeout(BOUND_S):
                while not client._client._data_watchers.get(client._client.chroot + paths.delete_topic(name)):
                    await asyncio.sleep(0.005)
            await client.delete(paths.delete_topic(name))  # what the controller does at the end
            assert await deleting
        watches = sum(map(len, client._client._data_watchers.values()))
        assert watches == 0
    finally:
        await client.close()


class Defaults:
    """Settings of topics that have none of their own."""

    def __init__(self) -> None:
        self.config = load({"zookeeper.connect": "nowhere:1", "broker.id": "1"})
        self.forgotten: list[str] = []

    def effective(self, topic: str) -> TopicConfig:
        return self.config.topic_config({})

    def forget(self, topic: str) -> None:
        self.forgotten.append(topic)


def test_what_was_worked_out_for_a_topic_goes_with_it() -> None:
    configs = Defaults()
    topics = TopicAdmin(
        cast(ZooKeeper, None), configs.config, cast(ConfigStore, configs), cast(MetadataCache, None)
    )
    assert topics.topic_config("passing").max_message_bytes > 0
    topics.forget("passing")
    assert configs.forgotten == ["passing"]
    assert not topics._log_configs
