"""Who leads a partition: pure rules over one partition's state and the set of living brokers.

Kafka's rules: the first living replica, in the order of the assignment, that is in the ISR; otherwise, only
where unclean election is allowed, any living replica; otherwise nobody, and the ISR stays so that its members
may come back. Beyond Kafka's: a member that came back in doubt is not elected (`last_replica`).
Every change raises the leader epoch, which fences what the old leader still does (I3).
(Kafka: `PartitionLeaderElectionAlgorithms`.)
"""

from collections.abc import Collection, Sequence

from broker.control.last_replica import Ends, suspects
from broker.control.metadata_cache import NO_LEADER
from broker.control.nodes import PartitionState


def first_state(
    replicas: Sequence[int], living: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """State of a new partition; None while none of its replicas lives.

    All living replicas are in sync from the start, for none has anything yet: whoever leads waits for them
    before it acknowledges, and another one can take over should it be gone before anybody has copied.
    (Kafka: `ZkPartitionStateMachine.initializeLeaderAndIsrForPartitions`.)
    """
    isr = tuple(replica for replica in replicas if replica in living)
    return PartitionState(isr[0], 0, isr, controller_epoch) if isr else None


def next_state(
    state: PartitionState,
    replicas: Sequence[int],
    living: Collection[int],
    controller_epoch: int,
    *,
    restarted: Collection[int] = (),
    unclean: bool = False,
    moved: bool = False,
    ends: Ends | None = None,
    together: bool = False,
) -> PartitionState | None:
    """What the state must become with these brokers alive; None when it may stay.

    `restarted` are living brokers that were away in between: they keep what nobody else can take over, with a
    new leader epoch. `moved` says that the replicas are other ones than before: a new term, so that all of
    them hear of it. `ends` tells how living brokers ended before; None trusts everybody, as Kafka does.
    """
    here = [replica for replica in replicas if replica in living]
    steady = [replica for replica in here if replica not in restarted] if restarted else here
    if state.leader in steady:
        return _without_the_others(state, steady, controller_epoch, always=moved)
    doubtful = () if ends is None else suspects(state, replicas, living, restarted, ends, together=together)
    trusted = [replica for replica in steady if replica not in doubtful] if doubtful else steady
    leader = _elect(state, replicas, trusted)
    if leader is None:
        leader = _elect(state, replicas, [replica for replica in here if replica not in doubtful])
    isr: tuple[int, ...]
    if leader is not None:
        isr = tuple([member for member in state.isr if member == leader or member in trusted])
    else:
        leader = _anybody(state, replicas, living) if unclean else None
        isr = state.isr if leader is None else (leader,)
    if leader is not None:
        return PartitionState(leader, state.leader_epoch + 1, isr, controller_epoch)
    if state.leader == NO_LEADER and state.suspects == doubtful:
        return None
    return PartitionState(NO_LEADER, state.leader_epoch + 1, isr, controller_epoch, doubtful)


def is_unclean(before: PartitionState, after: PartitionState) -> bool:
    """Whether the new leader may lack what was acknowledged: it was not in sync, or was the last one and came
    back from an unclean end. (Kafka: ControllerStats, UncleanLeaderElectionsPerSec.)
    """
    leader = after.leader
    if leader in (NO_LEADER, before.leader):
        return False
    return leader not in before.isr or leader in before.suspects


class SameCase:
    """What one event makes of all partitions: those with the same leader, ISR and replicas share an answer.

    When a site is lost, 200,000 partitions are a few thousand cases.
    """

    def __init__(
        self,
        living: frozenset[int],
        controller_epoch: int,
        restarted: Collection[int],
        ends: Ends | None,
        leaving: Collection[int] = (),
    ) -> None:
        """`leaving` live too, but only for what they lead themselves (see `living_for`)."""
        self._living = living
        self._leaving = leaving
        self._controller_epoch = controller_epoch
        self._restarted = restarted
        self._ends = ends
        self._answers: dict[tuple[object, ...], PartitionState | None] = {}

    def next_state(
        self, state: PartitionState, replicas: tuple[int, ...], unclean: bool
    ) -> PartitionState | None:
        """As `next_state`, for a partition of which nothing special is known."""
        leader, leader_epoch, isr, _, suspected = state
        case = leader, isr, suspected, replicas, unclean
        if case in self._answers:
            answer = self._answers[case]
        else:
            answer = self._answers[case] = next_state(
                state._replace(leader_epoch=0),
                replicas,
                living_for(leader, self._living, self._leaving),
                self._controller_epoch,
                restarted=self._restarted,
                unclean=unclean,
                ends=self._ends,
            )
        if answer is None or not leader_epoch:
            return answer
        chosen, terms, in_sync, epoch, doubtful = answer
        return PartitionState(chosen, leader_epoch + terms, in_sync, epoch, doubtful)


def living_for(leader: int, staying: frozenset[int], leaving: Collection[int]) -> frozenset[int]:
    """Who counts as living for a partition with this leader: one that is about to stop goes on leading what
    it could not hand over, until it is gone. Nobody else may lead that without losing what it acknowledged.
    (Kafka: elections by `OfflinePartitionLeaderElectionStrategy` are for partitions without a living leader.)
    """
    return staying | {leader} if leader in leaving else staying


def _anybody(state: PartitionState, replicas: Sequence[int], living: Collection[int]) -> int | None:
    """Whoever lives, rather one that was in sync."""
    in_sync = _elect(state, replicas, living)
    return in_sync if in_sync is not None else next((each for each in replicas if each in living), None)


def handed_over(
    state: PartitionState,
    replicas: Sequence[int],
    living: Collection[int],
    leaving: Collection[int],
    controller_epoch: int,
) -> PartitionState | None:
    """State after a leader that is about to stop has handed over; None when nobody can take over."""
    staying = [replica for replica in living if replica not in leaving]
    leader = _elect(state, replicas, staying)
    if leader is None:
        return None
    isr = tuple(member for member in state.isr if member not in leaving)
    return PartitionState(leader, state.leader_epoch + 1, isr, controller_epoch)


def left_out(state: PartitionState, leaving: int, controller_epoch: int) -> PartitionState | None:
    """State after a follower that is about to stop has left the ISR; None when it is not in it, or leads.

    In the same term. Its leader must not go on waiting for a copy that nobody makes any more.
    (Kafka: `KafkaController.doControlledShutdown`, which stops followers' replicas.)
    """
    if state.leader in (NO_LEADER, leaving) or leaving not in state.isr:
        return None
    isr = tuple(member for member in state.isr if member != leaving)
    return PartitionState(state.leader, state.leader_epoch, isr, controller_epoch)


def _elect(state: PartitionState, replicas: Sequence[int], living: Collection[int]) -> int | None:
    for replica in replicas:
        if replica in living and replica in state.isr:
            return replica
    return None


def _without_the_others(
    state: PartitionState, kept: Collection[int], controller_epoch: int, *, always: bool
) -> PartitionState | None:
    """The leader goes on, in the same term unless `always`: who is out of the ISR comes back by the leader's
    proposal, in which the controller looks at its broker epoch (KIP-903), so no new term has to fence it.
    (Kafka: KRaft's `PartitionChangeBuilder` since 3.6; its controller with ZooKeeper began a new term.)
    """
    isr = tuple([member for member in state.isr if member in kept])  # site loss: 200,000 times
    if isr == state.isr and not always:
        return None
    return PartitionState(state.leader, state.leader_epoch + always, isr, controller_epoch)
