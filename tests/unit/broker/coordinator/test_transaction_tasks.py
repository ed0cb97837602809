"""What the transaction coordinator does by itself goes on, whatever fails once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.control.internal_topics import TRANSACTIONS_TOPIC
from broker.coordinator.transactions.coordinator import TransactionCoordinator
from broker.coordinator.transactions.states import TxnState
from protocol.types import TopicPartition
from tests.support.served import Served, batch, served

BOUND_S = 30.0


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "data") as running:
        yield running


async def is_so(condition: Any) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_an_end_that_fails_in_an_unforeseen_way_is_tried_again(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.topics.create(TRANSACTIONS_TOPIC)
    node.topics.create("t")
    transactions = node.broker.transactions
    producer_id, epoch = await transactions.init_producer_id("x", 60_000, None)
    await transactions.add_partitions("x", producer_id, epoch, [TopicPartition("t", 0)])
    partition = node.broker.replicas.leader("t", 0)
    data = batch(b"a", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    partition.append(memoryview(bytearray(data)))
    write = node.broker.markers.write
    failures: list[Any] = []

    def fails_once(*arguments: Any, **more: Any) -> Any:
        if not failures:
            failures.append(arguments)
            raise RuntimeError("unforeseen")
        return write(*arguments, **more)

    monkeypatch.setattr(node.broker.markers, "write", fails_once)
    await transactions.end("x", producer_id, epoch, commit=True)

    def completed() -> bool:
        found = transactions.find("x")
        return found is not None and found.image.state is TxnState.COMPLETE_COMMIT

    await is_so(completed)
    assert failures
    assert partition.log.last_stable_offset == partition.log.end_offset == 2


async def test_a_producer_whose_last_epoch_timed_out_goes_on_with_another_id(node: Served) -> None:
    """Else its abort would be told an epoch with which no marker can end what it writes then."""
    node.topics.create(TRANSACTIONS_TOPIC)
    node.topics.create("t")
    transactions = node.broker.transactions
    transactions._version = lambda: 2
    producer_id, _ = await transactions.init_producer_id("x", 1, None)
    found = transactions.find("x")
    assert found is not None
    found.image = replace(found.image, epoch=32_766)
    member = TopicPartition("t", 0)
    await transactions.add_partitions("x", producer_id, 32_766, [member], client_version=2)
    found.image = replace(found.image, start_ms=0)
    await transactions.abort_timed_out()
    await is_so(lambda: found.image.state is TxnState.COMPLETE_ABORT)
    following = await transactions.end_v2("x", producer_id, 32_766, commit=False)
    assert following.producer_id != producer_id
    assert following.epoch == 0


async def test_the_search_for_timed_out_transactions_outlives_a_failure(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions: TransactionCoordinator = node.broker.transactions
    calls: list[int] = []

    async def fails() -> None:
        calls.append(1)
        raise RuntimeError("unforeseen")

    task = asyncio.create_task(transactions._for_ever(1, fails))
    try:
        await is_so(lambda: len(calls) > 2)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
