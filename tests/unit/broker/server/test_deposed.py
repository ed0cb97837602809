"""A leader that may have been deposed without having heard of it has clients that come from the one of now.

librdkafka forgets the epoch of a leader that a broker's metadata does not name any more
(`rd_kafka_toppar_forget_leader`), and takes what that broker then says of the log for the truth.
"""

import math

import pytest

from protocol.errors import ErrorCode
from protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.lone_broker import BROKER_ID
from tests.support.served import batch

END, EPOCH = 3, 2


@pytest.fixture
async def deposed(node):
    """Leads in epoch 2 and has three records; ZooKeeper has not heard from it for too long."""
    # With clean elections nobody else can be elected where this broker is the whole ISR.
    topic_id = node.topics.create("t", unclean_leader_election_enable="true")
    node.topics.lead("t", topic_id, range(1), BROKER_ID, leader_epoch=EPOCH, version=1)
    await node.produce("t", batch(b"a", b"b", b"c"))
    node.broker.replicas.lease.until = -math.inf
    return node


async def epoch_end(node, epoch):
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=EPOCH)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])])
    (answer,) = (await node.connection.send(request, 4)).topics[0].partitions
    return answer.error_code, answer.leader_epoch, answer.end_offset


async def test_it_does_not_say_that_an_offset_is_behind_the_end(deposed):
    assert (await deposed.fetch("t", END + 1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    later = await deposed.fetch("t", END, last_fetched_epoch=EPOCH + 2)
    assert later.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    deposed.broker.replicas.lease.until = math.inf
    assert (await deposed.fetch("t", END + 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    later = await deposed.fetch("t", END, last_fetched_epoch=EPOCH + 2)
    assert later.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_it_does_not_say_that_an_epoch_is_unknown(deposed):
    assert await epoch_end(deposed, EPOCH + 2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
    deposed.broker.replicas.lease.until = math.inf
    assert await epoch_end(deposed, EPOCH + 2) == (0, -1, -1)


async def test_what_is_true_whoever_leads_is_answered(deposed):
    """All brokers may be deposed as far as they know: while ZooKeeper is away readers go on."""
    found = await deposed.fetch("t", 0)
    assert (found.error_code, found.high_watermark) == (0, END)
    assert (await deposed.fetch("t", END, last_fetched_epoch=EPOCH)).error_code == 0
    assert (await deposed.fetch("t", -1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE  # before the beginning
    assert await epoch_end(deposed, EPOCH) == (0, EPOCH, END)
    wanted = ListOffsetsTopic(
        name="t",
        partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=EPOCH)],
    )
    (answer,) = (await deposed.connection.send(ListOffsetsRequest(topics=[wanted]), 8)).topics[0].partitions
    assert (answer.error_code, answer.offset) == (0, END)
