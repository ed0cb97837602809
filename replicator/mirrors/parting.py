"""Up to where two logs hold the same: found by leader epochs, as a follower finds it (KIP-101, KIP-279).

Owns the rule; where an epoch ended in either log is asked through functions. A mirror keeps its source's
epochs, so an epoch means the same on both sides, as long as each writes in epochs of its own (`lineage`).
(Kafka: `AbstractFetcherThread.getOffsetTruncationState`, again and again until it is settled.)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from protocol.client.mirror_calls import NO_EPOCH, EpochEnd

Ask = Callable[[int], Awaitable[EpochEnd]]
_ROUNDS: Final = 1000


async def common_end(last_epoch: int, end: int, ask_owner: Ask, ask_copy: Ask) -> int | None:
    """The offset up to which a copy, whose last batch is of `last_epoch` and which ends at `end`, is a part
    of the owner's log; None where the owner knows no epoch as old as that, so nothing can be said.
    """
    if last_epoch < 0:
        return end  # it has no batch that could be another one
    epoch = last_epoch
    for _ in range(_ROUNDS):
        theirs = await ask_owner(epoch)
        if theirs.end < 0:
            return None
        if theirs.epoch == epoch:
            return min(end, theirs.end)
        ours = await ask_copy(theirs.epoch)
        if ours.epoch == NO_EPOCH or ours.end < 0:
            return min(end, theirs.end)
        end = min(end, ours.end)
        if ours.epoch == theirs.epoch:
            return min(end, theirs.end)
        epoch = ours.epoch
    return None
