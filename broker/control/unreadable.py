"""What is said of nodes in ZooKeeper that cannot be read: which, why, and what an operator has to do.

What cannot be read is not known, which is something else than not being there: nothing is deleted, set aside,
elected or written because of it. Pure text. (Kafka's controller ends its reign over such a node.)
"""

from collections.abc import Mapping, Sequence

_NAMED = 5

_TOPIC = (
    "the topic stays as it is, without elections after a new start, moves or deletion, and no log of it is "
    "set aside. Write what Kafka writes there, from a backup of ZooKeeper or by hand: "
    '{"partitions":{"0":[1,2,3]},"topic_id":"...","adding_replicas":{},"removing_replicas":{},"version":3}, '
    "with the id that partition.metadata in a directory of the topic has; it is read again at once"
)
_STATE = (
    "the partition keeps its leader while that lives, gets no other one, and its logs stay where they are. "
    "Write what Kafka writes there: "
    '{"controller_epoch":C,"leader":-1,"version":1,"leader_epoch":E,"isr":[...]}, with E above the '
    "last epoch in the leader-epoch-checkpoint files of its replicas and in `isr` only brokers that have "
    "all acknowledged records. Do not remove the node. It is read again at once"
)


def topics_text(reasons: Mapping[str, str]) -> str:
    """`reasons` by the path of the topic's node."""
    return f"{_listed(reasons)}: {_TOPIC}"


def states_text(reasons: Mapping[str, str]) -> str:
    """`reasons` by the path of the partition's state."""
    return f"{_listed(reasons)}: {_STATE}"


def _listed(reasons: Mapping[str, str]) -> str:
    named: Sequence[str] = [f"{path} ({reason})" for path, reason in sorted(reasons.items())]
    more = f" and {len(named) - _NAMED} more nodes" if len(named) > _NAMED else ""
    return f"cannot be read in ZooKeeper: {', '.join(named[:_NAMED])}{more}"
