"""Between the coordinator's word and the batch that it is for: no end may slip in."""

from __future__ import annotations

from typing import Any

import pytest

from broker.control.internal_topics import TRANSACTIONS_TOPIC
from broker.coordinator.transactions.markers import Ending
from protocol.errors import ErrorCode
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.types import TopicPartition
from tests.support.served import Served, batch

MEMBER = TopicPartition("t", 0)


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
