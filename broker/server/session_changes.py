"""Which partitions of a follower's session have to be looked at: those where something has happened.

A partition at rest has told its follower everything, and the follower has told that it has it all: no fetch
looks at it, and it calls back once (`Partition.rest`), when something is appended or changes. So a fetch
costs what has changed, however many partitions its session has. The follower counts as having looked at those
at rest with each fetch of its session; that is noted when the rest ends. What moves without a word (retention
moves a log's start) is looked for every few seconds. Knows no requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.server.fetch_sessions import Key, Partitions, Wanted

if TYPE_CHECKING:
    from broker.replication import Partition

LOOK_AGAIN_S = 5.0


class SessionChanges:
    """`moving` are to be looked at. `arrived` says whether a fetch that waits should look now."""

    __slots__ = (
        "_at_rest", "_broker_epoch", "_fetched_at", "_keys", "_look_at", "_replica", "arrived", "moving",
        "on_arrival",
    )  # fmt: skip

    def __init__(self, replica: int, broker_epoch: int, partitions: Partitions, now: float) -> None:
        self._replica = replica
        self._broker_epoch = broker_epoch
        self.moving: Partitions = dict(partitions)
        self._at_rest: dict[Partition, tuple[Key, Wanted]] = {}
        self._keys: dict[Key, Partition] = {}  # of those at rest
        self._fetched_at = now
        self._look_at = now + LOOK_AGAIN_S
        self.arrived = False
        self.on_arrival: Callable[[Partition, int], None] | None = None
        """Told of what a fetch waits for: the partition, and bytes as `Watcher`s get them."""

    @property
    def quiet(self) -> int:
        """How many partitions are at rest."""
        return len(self._at_rest)

    # -- the follower's word

    def fetched(self, broker_epoch: int, now: float) -> None:
        """A fetch of the session has come."""
        if broker_epoch != self._broker_epoch:  # another life of the follower's (KIP-903)
            self._broker_epoch = broker_epoch
            for partition in list(self._at_rest):
                self._wake(partition)
        elif now >= self._look_at:
            self._look_at = now + LOOK_AGAIN_S
            for partition, (_, wanted) in list(self._at_rest.items()):
                if not _is_told(partition, wanted):
                    self._wake(partition)
        self._fetched_at = now

    def asked(self, key: Key, wanted: Wanted) -> None:
        """The request names this partition: it is new, or the follower stands somewhere else."""
        partition = self._keys.get(key)
        if partition is not None:
            self._wake(partition)
        self.moving[key] = wanted

    def forget(self, key: Key) -> None:
        """The follower has no interest in it any more."""
        partition = self._keys.get(key)
        if partition is not None:
            self._wake(partition)
        self.moving.pop(key, None)

    def close(self) -> None:
        """The session is over: no partition calls back."""
        for partition in list(self._at_rest):
            self._wake(partition)
        self.moving.clear()

    # -- rest

    def rest(self, key: Key, wanted: Wanted, partition: Partition) -> None:
        """Nothing is to be told about it, and its follower has what it has."""
        self.moving.pop(key, None)
        self._at_rest[partition] = (key, wanted)
        self._keys[key] = partition
        partition.rest(self)

    def serve_last(self, key: Key) -> None:
        """It had data: others come first next time."""
        wanted = self.moving.pop(key, None)
        if wanted is not None:
            self.moving[key] = wanted

    def moved(self, partition: Partition, size: int | None) -> None:
        """The partition's call: what was appended, 0 for another leadership, None for what can wait."""
        self._end_rest(partition)
        if size is not None:
            self.arrived = True
            if self.on_arrival is not None:
                self.on_arrival(partition, size)

    def _wake(self, partition: Partition) -> None:
        partition.end_rest(self)
        self._end_rest(partition)

    def _end_rest(self, partition: Partition) -> None:
        key, wanted = self._at_rest.pop(partition)
        self._keys.pop(key, None)
        self.moving[key] = wanted
        follower = partition.in_sync.followers.get(self._replica)
        if follower is not None:
            follower.was_there(self._fetched_at)


def _is_told(partition: Partition, wanted: Wanted) -> bool:
    log = partition.log
    return (
        log.end_offset == wanted.asked.fetch_offset
        and log.high_watermark == wanted.high_watermark
        and log.start_offset == wanted.log_start_offset
    )
