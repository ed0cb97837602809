"""Who came back without being sure to have everything, and must not lead before a person says so.

Owns the rule about the last members of an ISR (KIP-966's hole): a replica that was the only one in sync and
whose process did not end cleanly may lack what was acknowledged, and nobody is left to tell. Pure. How a
process ended is found out by `previous_end`. (docs/decisions/last-replica-needs-a-word.md)
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from broker.control.nodes import PartitionState
from protocol.types import TopicPartition

_NAMED = 5


class PreviousEnd(StrEnum):
    """How a broker's run before this one ended, as its registration says."""

    CLEAN = "clean"
    KILLED = "killed"
    """The process ended at once, its machine runs on: what was written is in the page cache or on disk."""
    LOST = "lost"
    """The machine was started anew meanwhile, or the directory is another one: the tail may be gone."""

    @classmethod
    def of(cls, text: str) -> "PreviousEnd":
        """What a registration says; nothing, as with Apache Kafka's brokers, is no reason to doubt."""
        return cls(text) if text in tuple(cls) else cls.CLEAN


Ends = Mapping[int, PreviousEnd]
"""Of living brokers."""


def suspects(
    state: PartitionState,
    replicas: Sequence[int],
    living: Collection[int],
    restarted: Collection[int],
    ends: Ends,
    *,
    together: bool = False,
) -> tuple[int, ...]:
    """Members of the ISR that came back in doubt. A sole replica never is: nothing else could be elected.

    Several members that were killed together are trusted, for each wrote what was acknowledged; one by itself
    is not. After a loss of the machine none is. `together` says that the last one was never heard of after
    the others had gone (`KilledTogether`).
    """
    if len(replicas) < 2 or not (state.suspects or restarted or state.leader < 0):
        return ()  # nobody came back
    several = len(state.isr) > 1 or together
    doubtful = {PreviousEnd.LOST} if several else {PreviousEnd.LOST, PreviousEnd.KILLED}
    came_back = [each for each in state.isr if each in living and (state.leader < 0 or each in restarted)]
    return tuple(
        each
        for each in state.isr
        if each in replicas and (each in state.suspects or (each in came_back and ends.get(each) in doubtful))
    )


class KilledTogether:
    """Partitions whose sole in-sync replica has not answered since the others went: it never led alone.

    When a whole cluster is killed at once, its brokers are missed one after the other, as their sessions end
    or they come back; the last to be missed was as dead as the others. One reign's memory: the next one
    doubts.
    """

    def __init__(self) -> None:
        self._partitions: set[TopicPartition] = set()

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._partitions

    def __bool__(self) -> bool:
        return bool(self._partitions)

    def written(
        self, partition: TopicPartition, before: PartitionState | None, state: PartitionState
    ) -> None:
        """The controller has changed a state, because brokers went or came."""
        if len(state.isr) > 1 or before is None:
            self._partitions.discard(partition)
        elif len(before.isr) > 1:
            self._partitions.add(partition)

    def heard(self, partitions: Iterable[TopicPartition]) -> None:
        """A broker has answered for them, or proposed something."""
        if self._partitions:
            self._partitions.difference_update(partitions)


def warning(waiting: Iterable[tuple[TopicPartition, PartitionState]]) -> str:
    """What an operator has to know of partitions that were just left without a leader."""
    named = [f"{partition} (broker {', '.join(map(str, state.suspects))})" for partition, state in waiting]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return (
        f"{', '.join(named[:_NAMED])}{more}: no leader, for the last in-sync replica came back from an "
        "unclean end and may lack acknowledged records; `isthmus elect` shows what could be lost and elects"
    )
