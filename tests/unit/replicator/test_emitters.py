"""What a link writes for MirrorMaker 2's tools, when."""

import pytest

from protocol.client import TopicMetadata
from protocol.client.metadata import Metadata
from protocol.errors import ErrorCode, KafkaError
from protocol.records import decode_batches
from protocol.types import TopicPartition
from replicator.emitters import Checkpoints
from replicator.internal_topics import InternalTopic
from replicator.layouts import Checkpoint
from replicator.translate import GroupTranslation, Position

THERE = TopicPartition("east.orders", 0)


class Topic:
    def __init__(self):
        self.rows = []

    async def ensure_once(self):
        pass

    async def append(self, rows):
        self.rows += rows


async def emitted(*positions):
    """Checkpoints of one group that stood at these positions one after the other."""
    topic = Topic()
    checkpoints = Checkpoints(topic)
    for position in positions:
        await checkpoints.emit({"g": GroupTranslation({THERE: position})})
    read = [Checkpoint.read(*row) for row in topic.rows]
    return [(point.upstream, point.downstream, point.metadata) for point in read]


async def test_a_checkpoint_for_each_new_position_with_its_metadata():
    same = Position(105, True, 5, "m")
    assert await emitted(same, same, Position(107, True, 7)) == [(5, 105, "m"), (7, 107, "")]


async def test_metadata_that_a_checkpoint_cannot_hold_is_left_out():
    assert await emitted(Position(105, True, 5, "m" * 0x8000)) == [(5, 105, "")]


async def test_a_group_that_goes_back_takes_its_checkpoint_back():
    assert await emitted(Position(107, True, 7), Position(105, True, 5)) == [(7, 107, ""), (5, 105, "")]


async def test_a_mirror_that_was_made_again_is_not_pointed_behind():
    """Its records stand elsewhere now; the earlier checkpoint is behind its end, or skips records."""
    full, again = Position(1000, True, 1000), Position(0, False, 1000)
    assert await emitted(full, again, Position(200, True, 1000)) == [
        (1000, 1000, ""),
        (1000, 0, ""),
        (1000, 200, ""),
    ]


class Deletable:
    """A client of a cluster with one topic at most."""

    def __init__(self):
        self.there, self.rows = {}, []

    async def metadata(self, names):
        return Metadata(None, -1, topics=self.there)

    async def create_topics(self, topics):
        self.there = {topic.name: TopicMetadata(topic.name, bytes(16), 0, False, {}) for topic in topics}

    async def produce(self, tp, batch):
        if not self.there:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))
        self.rows += [Checkpoint.read(record.key, record.value) for record in decode_batches(batch)]


async def test_checkpoints_of_a_topic_that_was_deleted_are_written_once_more_all_of_them():
    cluster = Deletable()
    checkpoints = Checkpoints(InternalTopic(cluster, "east.checkpoints.internal"))
    idle = GroupTranslation({THERE: Position(105, True, 5)})
    await checkpoints.emit({"idle": idle, "busy": GroupTranslation({THERE: Position(107, True, 7)})})
    cluster.there, cluster.rows = {}, []
    now = {"idle": idle, "busy": GroupTranslation({THERE: Position(108, True, 8)})}
    with pytest.raises(KafkaError):
        await checkpoints.emit(now)
    await checkpoints.emit(now)
    assert {(point.group, point.downstream) for point in cluster.rows} == {("idle", 105), ("busy", 108)}
