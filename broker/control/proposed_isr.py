"""Whether what a leader proposes as in-sync replicas may be stored (AlterPartition, KIP-497). Pure.

(Kafka: `KafkaController.validateAlterPartition`.)
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from broker.control.orders import LiveBroker, StoredState
from protocol.errors import ErrorCode


class IsrProposal(NamedTuple):
    """What a leader wants to be stored. `isr` are (broker id, its epoch as the leader knows it, or -1)."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


def refusal(
    leader: int,
    proposal: IsrProposal,
    stored: StoredState,
    replicas: Collection[int],
    brokers: Mapping[int, LiveBroker],
    unable: Collection[int],
) -> ErrorCode | None:
    """An error as Kafka's controller gives it, NONE for what is stored already, or None: it may be stored.

    `unable` are brokers that stop, or whose replica is offline. A leader that stops may stay in the ISR: its
    own hand-over waits for the others.
    """
    state, version = stored
    if proposal.leader_epoch != state.leader_epoch:
        newer = proposal.leader_epoch > state.leader_epoch
        return ErrorCode.NOT_CONTROLLER if newer else ErrorCode.FENCED_LEADER_EPOCH
    isr = {member for member, _ in proposal.isr}
    if leader != state.leader or leader not in isr or not isr <= set(replicas):
        return ErrorCode.INVALID_REQUEST
    if isr == set(state.isr):
        return ErrorCode.NONE
    if proposal.partition_epoch != version:
        newer = proposal.partition_epoch > version
        return ErrorCode.NOT_CONTROLLER if newer else ErrorCode.INVALID_UPDATE_VERSION
    for member, epoch in proposal.isr:
        broker = brokers.get(member)
        if broker is None or member in unable or 0 <= epoch != broker.epoch:
            return ErrorCode.INELIGIBLE_REPLICA
    return None
