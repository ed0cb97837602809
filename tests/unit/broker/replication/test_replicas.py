"""What the controller's orders do to the replicas here, with real logs and without any network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.log import LogConfig, LogManager
from broker.replication import Partition, ReplicaManager
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.leader_and_isr_response import LeaderAndIsrResponse
from protocol.messages.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from protocol.messages.stop_replica_response import StopReplicaResponse
from protocol.records import Record, build_batch
from protocol.types import ZERO_UUID, new_topic_id
from tests.support.clock import VirtualClock

HERE, ELSEWHERE = 1, 2
TOPIC_ID = new_topic_id()


class World:
    """A replica table over real logs, and the controller's voice."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = VirtualClock()
        self.logs = LogManager([directory], HERE, "cluster", self.clock)
        self.logs.load()
        self.known: set[tuple[str, int]] = set()
        self.changes: list[tuple[str, bool]] = []
        self.replicas = ReplicaManager(
            HERE,
            self.logs,
            self.clock,
            topic_config=lambda topic: LogConfig(),
            knows=lambda topic, partition: (topic, partition) in self.known,
        )
        self.replicas.on_leadership_change(
            lambda partition, leads: self.changes.append((str(partition), leads))
        )

    def order(
        self,
        *indexes: int,
        topic: str = "t",
        topic_id: bytes = TOPIC_ID,
        leader: int = HERE,
        leader_epoch: int = 0,
        controller_epoch: int = 1,
        isr: tuple[int, ...] | None = None,
        version: int = 0,
    ) -> LeaderAndIsrResponse:
        states = [
            LeaderAndIsrPartitionState(
                partition_index=index,
                controller_epoch=controller_epoch,
                leader=leader,
                leader_epoch=leader_epoch,
                isr=list(isr or (leader,)),
                partition_epoch=version,
                replicas=[leader],
            )
            for index in indexes or (0,)
        ]
        return self.replicas.apply_leader_and_isr(
            LeaderAndIsrRequest(
                controller_id=9,
                controller_epoch=controller_epoch,
                topic_states=[
                    LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)
                ],
            )
        )

    def stop(
        self, index: int = 0, *, epoch: int = -1, delete: bool = False, controller_epoch: int = 1
    ) -> StopReplicaResponse:
        state = StopReplicaPartitionState(partition_index=index, leader_epoch=epoch, delete_partition=delete)
        return self.replicas.stop_replicas(
            StopReplicaRequest(
                controller_epoch=controller_epoch,
                topic_states=[StopReplicaTopicState(topic_name="t", partition_states=[state])],
            )
        )

    def append(self, *values: bytes, partition: int = 0) -> int:
        records = [
            Record(offset=n, timestamp=self.clock.now_ms(), key=None, value=value, headers=[])
            for n, value in enumerate(values)
        ]
        hosted = self.replicas.leader("t", partition)
        return hosted.append(memoryview(bytearray(build_batch(records)))).last_offset

    def refusal(self, partition: int = 0, epoch: int = -1) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.replicas.leader("t", partition, epoch)
        return caught.value.code


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.logs.close()


def codes(response: LeaderAndIsrResponse) -> list[int]:
    return [error.error_code for topic in response.topics for error in topic.partition_errors]


def test_leading_and_following(world: World) -> None:
    assert world.refusal() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.known.add(("t", 0))
    assert world.refusal() == ErrorCode.NOT_LEADER_OR_FOLLOWER, "known in the cluster, not here yet"
    assert codes(world.order(0, 1)) == [0, 0]
    partition = world.replicas.leader("t", 0)
    assert world.append(b"a", b"b") == 1
    assert (partition.high_watermark, partition.log.epochs.latest) == (2, 0)
    assert partition.topic_id == TOPIC_ID
    assert len(world.replicas) == 2
    world.order(leader=ELSEWHERE, leader_epoch=1)
    assert world.refusal() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError, match="leader is broker 2"):
        partition.append(memoryview(b""))
    assert world.changes == [("t-0", True), ("t-1", True), ("t-0", False)]


def test_a_new_term_is_announced_again_and_recorded_in_the_log(world: World) -> None:
    world.order()
    world.append(b"a")
    world.order(leader_epoch=3)
    world.append(b"b")
    partition = world.replicas.leader("t", 0, 3)
    assert partition.log.epoch_end_offset(0) == (0, 1)
    assert partition.log.epoch_end_offset(3) == (3, 2)
    assert world.changes == [("t-0", True), ("t-0", True)]
    assert world.refusal(epoch=2) == ErrorCode.FENCED_LEADER_EPOCH
    assert world.refusal(epoch=4) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_old_controllers_and_old_terms_are_refused(world: World) -> None:
    world.order(controller_epoch=5, leader_epoch=4)
    assert world.order(controller_epoch=4, leader_epoch=9, leader=ELSEWHERE).error_code == (
        ErrorCode.STALE_CONTROLLER_EPOCH
    )
    assert world.stop(controller_epoch=4, delete=True).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert codes(world.order(controller_epoch=5, leader_epoch=3, leader=ELSEWHERE)) == [
        ErrorCode.STALE_CONTROLLER_EPOCH
    ]
    assert world.replicas.leader("t", 0).leader_epoch == 4
    assert codes(world.order(controller_epoch=6, leader_epoch=4)) == [0], "a repetition is no error"
    assert world.changes == [("t-0", True)]
    assert world.replicas.controller_epoch == 6


def test_the_isr_may_change_within_a_term(world: World) -> None:
    world.order(isr=(HERE, ELSEWHERE))
    world.append(b"a")
    partition = world.replicas.leader("t", 0)
    assert (partition.high_watermark, partition.acknowledged(0)) == (0, False)
    woken: list[int] = []
    partition.watch(woken.append)
    world.order(isr=(HERE,), version=1)
    assert (partition.high_watermark, partition.acknowledged(0)) == (1, True)
    assert woken, "those who wait for acknowledgement look again"


def test_a_recreated_topic_never_shows_the_old_one_s_records(world: World) -> None:
    world.order(0, 1)
    world.append(b"old")
    other = new_topic_id()
    assert codes(world.order(topic_id=other, leader_epoch=0)) == [0]
    partition = world.replicas.leader("t", 0)
    assert (partition.topic_id, partition.log.end_offset) == (other, 0)
    assert world.replicas.hosted("t", 1).topic_id == TOPIC_ID, "partition 1 is still the old one's"
    set_aside = [path for path in world.directory.iterdir() if path.name.endswith("-stray")]
    assert len(set_aside) == 1
    assert any(path.stat().st_size for path in set_aside[0].glob("*.log")), "its data is kept"


def test_a_recreated_topic_is_noticed_after_a_restart(tmp_path: Path) -> None:
    before = World(tmp_path)
    before.order()
    before.append(b"old")
    before.logs.close()
    after = World(tmp_path)
    assert codes(after.order(topic_id=new_topic_id())) == [0]
    assert after.replicas.leader("t", 0).log.end_offset == 0
    after.logs.close()


def test_stopping_keeps_the_files_and_deleting_does_not(world: World) -> None:
    world.order(0, 1, leader_epoch=2)
    world.append(b"a")
    assert world.stop(epoch=1, delete=True).partition_errors[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert world.append(b"b") == 1
    assert world.stop(0).partition_errors[0].error_code == 0
    assert world.replicas.get("t", 0) is None
    assert world.changes[-1] == ("t-0", False)
    assert (world.directory / "t-0").is_dir()
    world.order(leader_epoch=3)
    assert world.replicas.leader("t", 0).log.end_offset == 2, "it goes on where it was"
    assert world.stop(0, epoch=-2, delete=True).partition_errors[0].error_code == 0
    assert world.stop(1, epoch=-2, delete=True).partition_errors[0].error_code == 0
    assert not (world.directory / "t-0").exists()
    assert len(world.replicas) == 0
    assert world.stop(7, delete=True).partition_errors[0].error_code == 0, "what is not here is deleted"


def test_older_request_versions_stop_replicas_too(world: World) -> None:
    world.order(0, 1)
    world.replicas.stop_replicas(
        StopReplicaRequest(
            controller_epoch=1,
            delete_partitions=True,
            ungrouped_partitions=[StopReplicaPartitionV0(topic_name="t", partition_index=0)],
            topics=[StopReplicaTopicV1(name="t", partition_indexes=[1])],
        )
    )
    assert len(world.replicas) == 0


def test_older_orders_without_topic_ids_are_obeyed(world: World) -> None:
    state = LeaderAndIsrPartitionState(
        topic_name="t", partition_index=0, leader=HERE, leader_epoch=0, isr=[HERE], replicas=[HERE]
    )
    request = LeaderAndIsrRequest(controller_epoch=1, ungrouped_partition_states=[state])
    assert [error.error_code for error in world.replicas.apply_leader_and_isr(request).partition_errors] == [
        0
    ]
    assert world.replicas.leader("t", 0).topic_id == ZERO_UUID
    world.append(b"a")
    assert codes(world.order(leader_epoch=1)) == [0]
    assert world.replicas.leader("t", 0).log.end_offset == 1
    assert world.replicas.leader("t", 0).topic_id == TOPIC_ID, "it is taken when a controller tells it"


def test_one_partition_that_cannot_be_opened_does_not_stop_the_others(world: World) -> None:
    (world.directory / "t-0").write_text("in the way")
    assert codes(world.order(0, 1)) == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert world.replicas.leader("t", 1).is_leader
    (world.directory / "t-0").unlink()
    assert codes(world.order(0, 1)) == [0, 0]


def test_a_failing_callback_does_not_stop_the_orders(world: World, caplog: pytest.LogCaptureFixture) -> None:
    def broken(partition: Partition, leads: bool) -> None:
        raise RuntimeError("no")

    world.replicas.on_leadership_change(broken)
    assert codes(world.order(0, 1)) == [0, 0]
    assert "callback failed" in caplog.text
