"""Between the coordinator's word and the batch that it is for: no end may slip in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.control.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.coordinator.offset_store import OffsetStore
from broker.coordinator.transactions.markers import Ending
from broker.coordinator.transactions.states import TxnState
from broker.server.transaction_members import codes_told
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.types import TopicPartition
from tests.support.served import Served, batch

MEMBER = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("top", "told"),
    [
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_coordinator_that_fails_as_a_whole_does_not_end_the_producer(
    top: ErrorCode, told: ErrorCode
) -> None:
    """INVALID_TXN_STATE is fatal for librdkafka; Kafka says it only in place of what clients must not see."""
    answer = AddPartitionsToTxnResponse(error_code=top)
    assert codes_told(answer, [MEMBER]) == {MEMBER: told}


@pytest.mark.parametrize(
    ("version", "marker_epoch", "code"),
    [
        (11, 3, ErrorCode.TRANSACTION_ABORTABLE),
        (12, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (12, 3, ErrorCode.NONE),
    ],
    ids=["version 1", "version 2", "version 2, the end of the transaction before"],
)
async def test_an_end_where_the_producer_is_not_known_yet_takes_the_word_back(
    node: Served, monkeypatch: pytest.MonkeyPatch, version: int, marker_epoch: int, code: ErrorCode
) -> None:
    """A coordinator that took over does not know whether the topic is still the same one: it ends nothing in
    a partition that has never heard of the producer, and so nothing there would know the batch as late.
    """
    node.topics.create(TRANSACTIONS_TOPIC)
    node.topics.create("t")
    members, markers = node.broker.transaction_members, node.broker.markers

    async def ended_meanwhile(producer: Any, partitions: Any, *, adds: bool) -> dict[Any, ErrorCode]:
        ending = Ending(producer.producer_id, marker_epoch, False, 9, 2 if adds else 0)
        await markers.write([MEMBER], ending, only_known={MEMBER})
        return dict.fromkeys(partitions, ErrorCode.NONE)

    monkeypatch.setattr(members, "ask", ended_meanwhile)
    monkeypatch.setattr(members, "answers_at_once", lambda transactional_id: False)
    data = batch(b"a", producer_id=5, producer_epoch=3, base_sequence=0, transactional=True)
    request = ProduceRequest(
        transactional_id="x",
        acks=1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=data)])],
    )
    answer = await node.connection.send(request, version)
    assert answer.responses[0].partition_responses[0].error_code == code
    log = node.broker.replicas.leader("t", 0).log
    assert log.end_offset == (1 if code is ErrorCode.NONE else 0)
    assert not markers._watched, "what was watched is forgotten"


async def test_many_offsets_are_not_committed_after_the_end_of_their_transaction(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their batch is built in a thread, which takes a while; readers would wait for another end for ever."""
    count = 501
    for topic, partitions in ((TRANSACTIONS_TOPIC, 1), (OFFSETS_TOPIC, 1), ("t", count)):
        node.topics.create(topic, partitions=partitions)
    transactions = node.broker.transactions
    producer_id, epoch = await transactions.init_producer_id("x", 60_000, None)
    where = TopicPartition(OFFSETS_TOPIC, node.broker.groups.partition_of("g"))
    await transactions.add_partitions("x", producer_id, epoch, [where])
    built_if_large = OffsetStore.built_if_large

    async def ended_meanwhile(*arguments: Any) -> Any:
        await transactions.end("x", producer_id, epoch, commit=False)
        async with asyncio.timeout(30):
            while (found := transactions.find("x")) and found.image.state is not TxnState.COMPLETE_ABORT:
                await asyncio.sleep(0.01)
        return await built_if_large(*arguments)

    monkeypatch.setattr(OffsetStore, "built_if_large", ended_meanwhile)
    positions = [TxnOffsetCommitRequestPartition(partition_index=n, committed_offset=1) for n in range(count)]
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=positions)],
    )
    answer = await node.connection.send(request, 4)
    codes = {each.error_code for topic in answer.topics for each in topic.partitions}
    assert codes == {ErrorCode.TRANSACTION_ABORTABLE}
    log = node.broker.replicas.leader(*where).log
    assert log.last_stable_offset == log.end_offset
