"""Brokers without places: leaders go round, and followers shift by one more with every round.

So the partitions that one broker leads have their followers spread over all others, and a broker that is lost
loads the rest evenly. (The pattern of Kafka's `AdminUtils.assignReplicasToBrokersRackUnaware`.)
"""

from collections.abc import Mapping, Sequence

from broker.control.assignment.brokers import Candidate


def place(
    candidates: Sequence[Candidate],
    partitions: int,
    replication_factor: int,
    first_partition: int,
    start: int,
) -> Mapping[int, tuple[int, ...]]:
    """Replicas by partition. Assumes `replication_factor` <= number of candidates."""
    order = sorted(item.broker_id for item in candidates)
    return {
        partition: _replicas(order, replication_factor, partition + start, partition // len(order) + start)
        for partition in range(first_partition, first_partition + partitions)
    }


def _replicas(order: Sequence[int], count: int, leader: int, shift: int) -> tuple[int, ...]:
    others = len(order) - 1
    followers = (order[(leader + 1 + (shift + number) % others) % len(order)] for number in range(count - 1))
    return order[leader % len(order)], *followers
