"""Moving a partition's replicas to other brokers (KIP-455): what a topic's node says while it is under way.

Pure. `assignment` holds old and new replicas until all new ones are in sync; `adding` and `removing` say
which are which, so that any controller can go on, or back. (Kafka: `ReplicaAssignment`.)
"""

import dataclasses
from collections.abc import Collection, Sequence

from broker.control.nodes import TopicNode


def is_moving(node: TopicNode, index: int) -> bool:
    return bool(node.adding.get(index) or node.removing.get(index))


def target_of(node: TopicNode, index: int) -> tuple[int, ...]:
    """Replicas that there will be."""
    removing = node.removing.get(index, ())
    return tuple(replica for replica in node.assignment[index] if replica not in removing)


def origin_of(node: TopicNode, index: int) -> tuple[int, ...]:
    """Replicas that there were before."""
    adding = node.adding.get(index, ())
    return tuple(replica for replica in node.assignment[index] if replica not in adding)


def begun(node: TopicNode, index: int, target: Sequence[int]) -> TopicNode:
    """The partition shall move to `target`, wherever it is moving to now."""
    origin = origin_of(node, index)
    everybody = (*target, *(replica for replica in origin if replica not in target))
    return _with(
        node,
        index,
        everybody,
        adding=tuple(replica for replica in everybody if replica not in origin),
        removing=tuple(replica for replica in everybody if replica not in target),
    )


def cancelled(node: TopicNode, index: int) -> TopicNode:
    """Back to where the partition was."""
    return _with(node, index, origin_of(node, index))


def finished(node: TopicNode, index: int) -> TopicNode:
    return _with(node, index, target_of(node, index))


def can_finish(node: TopicNode, index: int, isr: Collection[int]) -> bool:
    """Whether every new replica is in sync: from then on the old ones are not needed."""
    return is_moving(node, index) and set(target_of(node, index)) <= set(isr)


def _with(
    node: TopicNode,
    index: int,
    replicas: tuple[int, ...],
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> TopicNode:
    def put(table: dict[int, tuple[int, ...]], value: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
        left = {key: each for key, each in table.items() if key != index}
        return {**left, index: value} if value else left

    return dataclasses.replace(
        node,
        assignment={**node.assignment, index: replicas},
        adding=put(dict(node.adding), adding),
        removing=put(dict(node.removing), removing),
    )
