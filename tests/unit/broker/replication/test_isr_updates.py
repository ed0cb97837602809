"""Proposals on their way to the controller: answers, lost answers, and terms that end meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from broker.log import Log, LogConfig
from broker.replication import Partition
from broker.replication.isr_updates import IsrUpdates
from protocol.client.errors import ConnectError
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition_request import AlterPartitionRequest
from protocol.messages.alter_partition_response import AlterPartitionResponse, PartitionData, TopicData
from protocol.records import Record, build_batch
from protocol.types import new_topic_id
from tests.support.clock import VirtualClock
from tests.support.waiting import eventually

Answer = Callable[[AlterPartitionRequest], AlterPartitionResponse]


class Controller:
    """Answers by a script: each entry is the next answer, or what is raised instead."""

    def __init__(self) -> None:
        self.script: list[Answer | Exception] = []
        self.asked: list[AlterPartitionRequest] = []

    async def ask(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.asked.append(request)
        what = self.script.pop(0) if self.script else stored
        if isinstance(what, Exception):
            raise what
        return what(request)


def _each(request: AlterPartitionRequest, code: ErrorCode) -> AlterPartitionResponse:
    return AlterPartitionResponse(
        topics=[
            TopicData(
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=data.partition_index,
                        error_code=code,
                        leader_id=1,
                        leader_epoch=data.leader_epoch,
                        isr=[member.broker_id for member in data.new_isr_with_epochs],
                        partition_epoch=data.partition_epoch + 1,
                    )
                    for data in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def stored(request: AlterPartitionRequest) -> AlterPartitionResponse:
    return _each(request, ErrorCode.NONE)


def refused(code: ErrorCode) -> Answer:
    return lambda request: _each(request, code)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[tuple[Partition, Controller]]:
    """Broker 1 leads, alone in the ISR; its log ends at 1 and broker 2 has nothing yet."""
    controller = Controller()
    updates = IsrUpdates(1, lambda: 11, controller.ask)
    updates.start()
    log = Log.open(tmp_path, LogConfig(), VirtualClock())
    partition = Partition("t", new_topic_id(), 0, 1, log)
    partition.proposer = updates.propose
    partition.lead(1, 3, (1,), (1, 2), 5, 0.0)
    batch = build_batch([Record(0, 1, None, b"v", [])])
    partition.append(memoryview(bytearray(batch)))
    yield partition, controller
    await updates.close()
    log.close()


Place = tuple[Partition, Controller]


async def settled(partition: Partition, *isr: int) -> None:
    async def look() -> tuple[tuple[int, ...], object]:
        return partition.isr, partition.in_sync.proposed

    await eventually(look, lambda found: found == (isr, None))


async def test_a_follower_that_has_caught_up_joins(place: Place) -> None:
    partition, controller = place
    partition.followed(2, 1, 0, 1.0, broker_epoch=22)
    await settled(partition, 1, 2)
    assert partition.partition_epoch == 6
    [request] = controller.asked
    data = request.topics[0].partitions[0]
    members = [(member.broker_id, member.broker_epoch) for member in data.new_isr_with_epochs]
    assert (request.broker_id, request.broker_epoch, members) == (1, 11, [(1, 11), (2, 22)])
    assert (data.leader_epoch, data.partition_epoch) == (3, 5)


async def test_a_controller_that_cannot_be_reached_is_asked_again(place: Place) -> None:
    partition, controller = place
    controller.script = [ConnectError("nobody there"), lambda _: AlterPartitionResponse(error_code=41)]
    partition.followed(2, 1, 0, 1.0)
    await settled(partition, 1, 2)
    assert len(controller.asked) == 3


async def test_an_ineligible_replica_stays_out_until_it_fetches_again(place: Place) -> None:
    partition, controller = place
    controller.script = [refused(ErrorCode.INELIGIBLE_REPLICA)]
    partition.followed(2, 1, 0, 1.0)
    await settled(partition, 1)
    partition.followed(2, 1, 0, 1.5)
    assert partition.in_sync.proposed is None, "not at every fetch"
    partition.followed(2, 1, 0, 2.1)
    await settled(partition, 1, 2)


async def test_a_superseded_proposal_keeps_the_leader_careful_until_the_controller_speaks(
    place: Place,
) -> None:
    partition, controller = place
    controller.script = [refused(ErrorCode.INVALID_UPDATE_VERSION)]
    partition.followed(2, 1, 0, 1.0)

    async def asked() -> int:
        return len(controller.asked)

    await eventually(asked, bool)
    await asyncio.sleep(0)
    partition.append(memoryview(bytearray(build_batch([Record(0, 1, None, b"w", [])]))))
    assert partition.high_watermark == 1, "the earlier attempt may have been stored"
    partition.lead(1, 3, (1,), (1, 2), 7, 2.0)
    assert partition.high_watermark == 2


async def test_answers_of_a_term_that_is_over_do_not_count(place: Place) -> None:
    partition, controller = place

    def moved(request: AlterPartitionRequest) -> AlterPartitionResponse:
        partition.lead(1, 4, (1,), (1, 2), 9, 2.0)
        return stored(request)

    controller.script = [cast("Answer", moved)]
    partition.followed(2, 1, 0, 1.0)

    async def asked() -> int:
        return len(controller.asked)

    await eventually(asked, bool)
    await asyncio.sleep(0)
    assert (partition.isr, partition.partition_epoch) == ((1,), 9)


async def test_what_nobody_settles_is_told_again(place: Place) -> None:
    partition, controller = place
    controller.script = [refused(ErrorCode.INVALID_REQUEST)]
    partition.followed(2, 1, 0, 1.0)

    async def asked() -> int:
        return len(controller.asked)

    await eventually(asked, bool)
    await asyncio.sleep(0)
    assert partition.in_sync.proposed == (1, 2)
    partition.shrink(31.0, 30.0)
    await settled(partition, 1, 2)


async def test_what_was_not_foreseen_does_not_end_the_asking(place: Place) -> None:
    partition, controller = place
    controller.script = [ValueError("an answer that nobody understands")]
    partition.followed(2, 1, 0, 1.0)
    await settled(partition, 1, 2)


async def test_a_replica_that_has_stopped_does_not_stand_in_for_the_one_made_after_it(place: Place) -> None:
    partition, controller = place
    again = Partition("t", partition.topic_id, 0, 1, partition.log)

    def stopped_and_made_again(request: AlterPartitionRequest) -> AlterPartitionResponse:
        partition.stop_leading()
        again.proposer = partition.proposer
        again.lead(1, 4, (1,), (1, 2), 9, 2.0)
        again.followed(2, 1, 0, 2.0)
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)

    controller.script = [cast("Answer", stopped_and_made_again)]
    partition.followed(2, 1, 0, 1.0)
    await settled(again, 1, 2)
    assert len(controller.asked) == 2


async def test_a_fetch_of_an_earlier_life_says_nothing_of_the_present_one(place: Place) -> None:
    partition, _ = place
    partition.followed(2, 0, 0, 1.0, broker_epoch=22)
    with pytest.raises(KafkaError, match="epoch 21"):
        partition.followed(2, 1, 0, 1.0, broker_epoch=21)
    assert partition.in_sync.followers[2].end_offset == 0


async def test_a_strangers_fetch_is_refused(place: Place) -> None:
    partition, controller = place
    with pytest.raises(KafkaError) as caught:
        partition.followed(4, 1, 0, 1.0)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.in_sync.proposed, controller.asked) == (None, [])
