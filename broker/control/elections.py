"""Elections that somebody asks for (ElectLeaders, KIP-460), and the look for leaders that should move home.

Pure rules over partition states. A preferred leader is the first replica of the assignment; it takes over
only when it lives and is in sync, so nothing is lost. An unclean election takes any living replica and may
lose what was acknowledged: only on a person's word, and only where there is no leader. (Kafka:
`KafkaController.onReplicaElection`, `checkAndTriggerAutoLeaderRebalance`.)
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum

from broker.control.nodes import PartitionState
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition

LogEnds = Mapping[int, tuple[int, int]]
"""Epoch of the last record and end offset of each replica's log: a later epoch is worth more than length."""


class Election(IntEnum):
    """ElectionType of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


def elected(
    kind: Election,
    state: PartitionState,
    replicas: Sequence[int],
    living: Collection[int],
    controller_epoch: int,
    ends: LogEnds | None = None,
) -> PartitionState:
    """The state after this election. Raises KafkaError as Kafka's controller does.

    `ends` are the ends of the replicas' logs, as far as known: with them the longest log is elected.
    """
    if kind is Election.PREFERRED:
        leader = replicas[0]
        if state.leader == leader:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {leader} leads already")
        if leader not in living or leader not in state.isr:
            raise KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {leader} is not alive and in sync"
            )
        if leader in state.suspects:
            raise KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"broker {leader} was the last one in sync, came back from an unclean end and may lack "
                "acknowledged records: only an unclean election makes it the leader",
            )
        isr = state.isr
    else:
        if state.leader >= 0:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {state.leader} leads already")
        able = [replica for replica in replicas if replica in living]
        if not able:
            raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica is alive")
        leader = next((replica for replica in able if replica in state.isr), able[0])
        known = {replica: ends[replica] for replica in able if replica in ends} if ends else {}
        if known:
            longest = max(known.values())
            if known.get(leader) != longest:
                leader = next(replica for replica in able if known.get(replica) == longest)
        sure = [each for each in state.isr if each in living and each not in state.suspects]
        isr = tuple(sure) if leader in sure else (leader,)
    return PartitionState(leader, state.leader_epoch + 1, isr, controller_epoch)


def to_move_home(
    led: Iterable[tuple[TopicPartition, int, Sequence[int]]], living: Collection[int], percentage: int
) -> list[TopicPartition]:
    """Partitions whose preferred leaders miss more than `percentage` of theirs; `led` gives leader, replicas.

    `leader.imbalance.per.broker.percentage`, for each broker by itself.
    """
    all_of: dict[int, int] = defaultdict(int)
    missing: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition, leader, replicas in led:
        preferred = replicas[0]
        if preferred in living:
            all_of[preferred] += 1
            if leader != preferred:
                missing[preferred].append(partition)
    return [
        partition
        for preferred, partitions in missing.items()
        if 100 * len(partitions) > percentage * all_of[preferred]
        for partition in partitions
    ]
