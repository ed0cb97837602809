"""Orders for many partitions are carried out in turns: clients of others are served between."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.server.context import RequestContext
from broker.server.handlers.controller_orders import SLICE, leader_and_isr, stop_replica
from protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from protocol.messages.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tests.support.served import Served

COUNT = 350
FULL = 2


async def most_gone_in_one_turn(node: Served, order: Any) -> int:
    """Of the logs, while the order is carried out."""
    doing = asyncio.ensure_future(order)
    left, most = len(node.broker.logs), 0
    while not doing.done():
        await asyncio.sleep(0)
        now = len(node.broker.logs)
        left, most = now, max(most, left - now)
    response = await doing
    assert not response.error_code
    return most


def context(node: Served) -> RequestContext:
    return cast(RequestContext, SimpleNamespace(broker=node.broker))


async def test_thousands_of_partitions_are_deleted_in_turns(node: Served) -> None:
    node.topics.create("t", COUNT)
    node.topics.create("kept")
    states = [StopReplicaPartitionState(partition_index=n, delete_partition=True) for n in range(COUNT)]
    order = StopReplicaRequest(
        broker_epoch=-1,
        controller_epoch=node.broker.replicas.controller_epoch,
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=states)],
    )
    response = stop_replica(order, context(node))
    assert 0 < await most_gone_in_one_turn(node, response) <= SLICE
    assert [str(partition) for partition in node.broker.logs] == ["kept-0"]
    assert all(node.broker.replicas.get("t", n) is None for n in range(COUNT))


async def test_replicas_of_topics_that_are_gone_are_set_aside_in_turns(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(topics: object) -> None: ...

    monkeypatch.setattr(node.broker.topics.configs, "load_missing", nothing, raising=False)
    node.topics.create("t", COUNT)
    order = LeaderAndIsrRequest(
        broker_epoch=-1, controller_epoch=node.broker.replicas.controller_epoch, type=FULL
    )
    assert 0 < await most_gone_in_one_turn(node, leader_and_isr(order, context(node))) <= SLICE
    assert not list(node.broker.logs)
