"""Which brokers hold the replicas of new partitions: one file for each strategy, and the choice between them.

Pure: brokers and numbers in, replicas by partition out; a partition's first replica is its preferred leader.
"""

import random
from collections.abc import Mapping, Sequence

from broker.control.assignment import rack_aware, round_robin
from broker.control.assignment.brokers import Candidate

__all__ = ["Candidate", "NotEnoughBrokers", "RacksMissing", "place"]


class NotEnoughBrokers(Exception):
    """A partition cannot have more replicas than there are living brokers."""


class RacksMissing(Exception):
    """Only some brokers say where they are, so replicas cannot be spread over places."""


def place(
    candidates: Sequence[Candidate],
    partitions: int,
    replication_factor: int,
    *,
    first_partition: int = 0,
    start: int | None = None,
) -> Mapping[int, tuple[int, ...]]:
    """Replicas of `partitions` new partitions, the first of which is number `first_partition`.

    `start` is the position of the first leader in the strategy's order of brokers; None draws one.
    """
    if replication_factor > len(candidates):
        raise NotEnoughBrokers(
            f"replication factor {replication_factor} needs as many brokers, {len(candidates)} are alive"
        )
    placeless = [item.broker_id for item in candidates if item.rack is None]
    position = random.randrange(len(candidates)) if start is None else start
    if not placeless:
        return rack_aware.place(candidates, partitions, replication_factor, first_partition, position)
    if len(placeless) < len(candidates) and replication_factor > 1:
        raise RacksMissing(
            f"brokers {', '.join(map(str, sorted(placeless)))} have no broker.rack while others have one: "
            "set it on all of them, or on none"
        )
    return round_robin.place(candidates, partitions, replication_factor, first_partition, position)
