"""What the leading worker tells the others, from what they said when they joined.

Owns the way from a round's members to the orders for each: fresh epochs, everybody's claims respected,
nothing given out while a worker outside the group may still copy. The plan itself is `assignment`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from protocol.types import TopicPartition
from replicator.workers.assignment import assign, granted, uneven, weights
from replicator.workers.membership import Round
from replicator.workers.messages import MemberState, Orders, UnreadableError, WorkerInfo

_log = logging.getLogger("isthmus.replicator")


class OtherSourceError(Exception):
    """The other workers of this link copy from another cluster."""

    def __init__(self, link: str, theirs: str, ours: str) -> None:
        super().__init__(
            f"link {link}: the source that this process was given is cluster {ours}, but its other workers"
            f" copy from cluster {theirs}: nothing was copied; correct the source's address, or stop the"
            " others first"
        )


@dataclass(slots=True)
class Planning:
    """The last plan, for whoever led; `problem` says what is odd about the members."""

    planned: frozenset[TopicPartition] = frozenset()
    problem: str = ""
    unfinished: bool = False
    """A worker came and has less than its share yet: another round moves more."""
    _came: bool = False
    _members: frozenset[str] = frozenset()
    _rates: dict[TopicPartition, float] = field(default_factory=dict)

    def orders(
        self,
        joined: Round,
        leader: WorkerInfo,
        wanted: Collection[TopicPartition],
        epoch: int,
        *,
        withheld: bool,
    ) -> dict[str, Orders]:
        """One for each member. `epoch` is the highest known here; `withheld`: nobody gets anything new.

        What a member holds is its to keep, also if its topic is not seen any more: it tells why that is so.
        """
        everybody = _read(joined.members)
        source = _source(everybody, leader)
        states = {member: one for member, one in everybody.items() if one.info.source in ("", source)}
        for state in states.values():
            self._rates.update(state.rates)
        held = _claims(states, wanted)
        wanted = {tp for has in held.values() for tp in has}.union(wanted)
        self.planned = frozenset(wanted)
        weight = weights(wanted, self.rates())
        plan = assign(held, wanted, weight)
        may = granted(plan, held)
        self._level(joined, plan == may and uneven(plan, wanted, weight), settled=plan == may)
        if withheld:
            may = {member: has & held[member] for member, has in may.items()}
        epoch = max([epoch, *(state.epoch for state in states.values())]) + 1
        infos = {member: state.info for member, state in states.items()}
        different = {state.settings for state in states.values()}
        strangers = [one.info for member, one in everybody.items() if member not in states]
        self.problem = ""
        if strangers:
            self.problem = (
                f"{', '.join(map(str, strangers))} reads another source cluster"
                f" ({strangers[0].source}) than this link ({source}) and gets no partitions: look at its file"
            )
        elif len(different) > 1:
            self.problem = (
                f"workers of this link have different settings ({', '.join(map(str, infos.values()))}):"
                " start all with the same file"
            )
        return {
            member: Orders(epoch, leader.worker, frozenset(may.get(member, ())), infos, source)
            for member in joined.members
        }

    def _level(self, joined: Round, is_uneven: bool, *, settled: bool) -> None:
        """After a loss nothing is moved for the sake of level; after a worker came it is."""
        members = frozenset(joined.members)
        self._came = self._came or bool(members - self._members)
        self._members = members
        self.unfinished = self._came and is_uneven
        if settled and not is_uneven:
            self._came = False

    def rates(self) -> Mapping[TopicPartition, float]:
        """Bytes per second by partition, as members last said; whoever takes one does not know yet."""
        return self._rates

    def changed(self, wanted: Collection[TopicPartition]) -> bool:
        """Whether there is something to give out that the last plan does not know."""
        return not self.planned.issuperset(wanted)

    def is_uneven(
        self, held: Mapping[str, Collection[TopicPartition]], rates: Mapping[TopicPartition, float]
    ) -> bool:
        """Whether it would pay to move partitions now."""
        return uneven(held, self.planned, weights(self.planned, rates))


def _source(states: Mapping[str, MemberState], leader: WorkerInfo) -> str:
    """Id of the cluster that the link copies from: as those say who copy already, else as the leader does."""
    copying = [one.info.source for one in states.values() if one.info.source and (one.held or one.everything)]
    return leader.source if not copying or leader.source in copying else copying[0]


def _claims(
    states: Mapping[str, MemberState], wanted: Collection[TopicPartition]
) -> dict[str, frozenset[TopicPartition]]:
    """Who holds what. A worker that began alone may hold all that no other claims."""
    claimed = {tp for state in states.values() for tp in state.held}
    rest = frozenset(wanted) - claimed
    return {member: state.held | rest if state.everything else state.held for member, state in states.items()}


def _read(members: Mapping[str, bytes]) -> dict[str, MemberState]:
    states: dict[str, MemberState] = {}
    for member, data in members.items():
        try:
            states[member] = MemberState.decode(data)
        except UnreadableError as error:
            _log.error("a member of the link's group gets no partitions: %s", error)
    return states
