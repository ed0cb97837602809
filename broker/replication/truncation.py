"""Where a follower's log must be cut so that it holds nothing its leader does not have (KIP-101, KIP-279).

Pure. The leader says where the follower's latest epoch ended in its own log; what the follower has beyond
that was never acknowledged by a full in-sync set, or belongs to a leader that lost. (Kafka:
`AbstractFetcherThread.getOffsetTruncationState`.)
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

UNDEFINED = -1


class Epochs(Protocol):
    """The follower's own log, as far as this rule looks at it."""

    @property
    def end_offset(self) -> int: ...

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]: ...


class Cut(NamedTuple):
    """Truncate to `offset`; unless `done`, ask again about the epoch that is the latest then."""

    offset: int
    done: bool


def where_to_cut(log: Epochs, high_watermark: int, leader_epoch: int, leader_end: int) -> Cut:
    """What follows from the leader's answer: the largest epoch it knows that is not above the one asked for,
    and where that one ended there; both -1 when it knows none."""
    if leader_end == UNDEFINED:
        # It knows no epochs as old as ours. Only what is below the high watermark is known to be common.
        return Cut(high_watermark, True)
    if leader_epoch == UNDEFINED:
        return Cut(min(leader_end, log.end_offset), True)
    own_epoch, own_end = log.epoch_end_offset(leader_epoch)
    if own_end == UNDEFINED:
        # The leader's epoch is newer than all of ours: everything of ours is older than its answer.
        return Cut(min(leader_end, log.end_offset), True)
    if own_epoch != leader_epoch:
        # We have nothing of that epoch: cut to where our older one ended, and ask about that one.
        return Cut(min(own_end, log.end_offset), False)
    return Cut(min(own_end, leader_end, log.end_offset), True)
