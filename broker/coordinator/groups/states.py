"""The states of a classic group and the moves between them.

`Empty` has no members (it may have offsets). `PreparingRebalance` collects joins, `CompletingRebalance` waits
for the leader's assignment, `Stable` has handed it out. `Dead` is final: the group was deleted or its
coordinator has moved; whoever still holds it must look it up again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class GroupState(Enum):
    """A group's state, valued as Kafka prints it in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: state -> the states it may be entered from
ENTERED_FROM: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}

#: states in which a change of membership starts a new round
CAN_REBALANCE = ENTERED_FROM[GroupState.PREPARING_REBALANCE]
