"""Brokers with places: every place gets a replica before any gets a second one, and so on evenly.

With two places and four replicas each place holds two, so that losing a whole place leaves half of every
partition (Kafka's own rule stops at one replica for each place). Leaders go round over the places; followers
shift by one more with every round of leaders.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence

from broker.control.assignment.brokers import Candidate


def place(
    candidates: Sequence[Candidate],
    partitions: int,
    replication_factor: int,
    first_partition: int,
    start: int,
) -> Mapping[int, tuple[int, ...]]:
    """Replicas by partition. Assumes that all have a rack and `replication_factor` <= their number."""
    order = _alternating(candidates)
    return {
        partition: _replicas(order, replication_factor, partition + start, partition // len(order) + start)
        for partition in range(first_partition, first_partition + partitions)
    }


def _alternating(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Brokers in an order that goes from place to place: a1 b1 c1 a2 b2 …"""
    by_rack: dict[str | None, deque[Candidate]] = defaultdict(deque)
    for item in sorted(candidates):
        by_rack[item.rack].append(item)
    queues = [by_rack[rack] for rack in sorted(by_rack, key=str)]
    return [queue.popleft() for _ in range(len(candidates)) for queue in queues if queue]


def _replicas(order: Sequence[Candidate], count: int, leader: int, shift: int) -> tuple[int, ...]:
    first = order[leader % len(order)]
    rest = deque(order[(leader + step) % len(order)] for step in range(1, len(order)))
    rest.rotate(-shift)
    chosen = [first]
    used = Counter({first.rack: 1})
    while len(chosen) < count:
        fewest = min(used[item.rack] for item in rest)
        follower = next(item for item in rest if used[item.rack] == fewest)
        rest.remove(follower)
        used[follower.rack] += 1
        chosen.append(follower)
    return tuple(item.broker_id for item in chosen)
