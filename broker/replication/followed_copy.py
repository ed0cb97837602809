"""One followed partition: where it stands with its leader, and how its log is cut back or begun anew.

Pure but for the log: time is passed in, and what the leader says of its epochs and its start. A copy is cut
back before it is fetched, once for each leader epoch, and again when a fetch shows that the logs differ.
(Kafka: `PartitionFetchState`, `AbstractFetcherThread.truncate`.)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.log import LogError
from broker.replication.truncation import UNDEFINED, where_to_cut
from protocol.client.fetch_session import Position

if TYPE_CHECKING:
    from broker.replication.partition import Partition

logger = logging.getLogger("isthmus.broker")

_FIRST_DELAY_S = 0.02


class Copy:
    """`leader_id` is copied from; `longest_delay_s` is `replica.fetch.backoff.ms`."""

    __slots__ = (
        "_delay_s",
        "_longest_delay_s", "_position",
        "_suspect",
        "anew",
        "beyond",
        "caught_up",
        "lag",
        "leader_epoch",
        "leader_id",
        "not_before",
        "partition",
        "truncated",
    )  # fmt: skip

    def __init__(self, partition: Partition, leader_id: int, longest_delay_s: float) -> None:
        self.partition = partition
        self.leader_id = leader_id
        self.leader_epoch = partition.leader_epoch
        self.truncated = False
        self.beyond = False
        """The leader's log does not reach to where this one ends, or begins after that."""
        self.anew = False
        """The leader's log ends before this one begins: nothing of this one is kept."""
        self.lag = 0
        self.caught_up = partition.local_id in partition.isr
        """It is, or has been in this term, as far as its leader: no throttle holds it back."""
        self._position: Position | None = None
        self.not_before = 0.0
        self._longest_delay_s = longest_delay_s
        self._delay_s = _FIRST_DELAY_S
        self._suspect = False
        """It was cut back once more since the last fetch that found it a part of the leader's log."""

    @property
    def latest_epoch(self) -> int:
        return self.partition.log.epochs.latest

    @property
    def current(self) -> bool:
        """Whether the controller has not spoken again since; answers to older requests do not count."""
        return self.partition.leader_epoch == self.leader_epoch and not self.partition.is_leader

    def position(self) -> Position:
        """Where it stands; the same object as before where nothing has moved."""
        log, known = self.partition.log, self._position
        end, start, latest = log.end_offset, log.start_offset, log.epochs.latest
        if known is None or known[0] != end or known[2] != latest or known[3] != start:
            known = self._position = Position(end, self.leader_epoch, latest, start)
        return known

    @property
    def needs_start(self) -> bool:
        """Whether it has to be known where the leader's log begins."""
        return self.beyond or self.anew or self.latest_epoch == UNDEFINED

    def delay(self, now: float, *, soon: bool = False) -> None:
        """Leave it out for a while. `soon`: at first only for a moment, then longer each time."""
        longest = self._longest_delay_s
        self.not_before = now + (min(self._delay_s, longest) if soon else longest)
        self._delay_s = min(2 * self._delay_s, longest)

    def agrees(self) -> None:
        """A fetch has shown that this log is a part of the leader's."""
        self._suspect, self._delay_s = False, _FIRST_DELAY_S

    def cut_again(self, now: float) -> None:
        """The leader's log is not what it was taken for; where a cut does not help there is a pause."""
        self.truncated = False
        if self._suspect:
            self.delay(now)
        self._suspect = True

    def begin(self, leader_start: int, now: float) -> None:
        """The leader's log begins there: so does one that has nothing of it."""
        partition, log = self.partition, self.partition.log
        beyond, self.beyond = self.beyond and not self.anew, False
        try:
            if self.anew or leader_start > log.end_offset:
                if log.end_offset > log.start_offset:
                    logger.warning(
                        "%s: offsets %d to %d are dropped, broker %d has none of them; begun anew at %d",
                        partition, log.start_offset, log.end_offset, self.leader_id, leader_start,
                    )  # fmt: skip
                log.truncate_fully(leader_start)
        except (LogError, OSError) as error:
            logger.error("%s: cannot begin anew: %s", partition, error)
            self.delay(now)
            return
        self.anew = False
        self.truncated = self.latest_epoch == UNDEFINED and not beyond

    def cut(self, leader_epoch: int, leader_end: int, now: float) -> None:
        """The leader's epoch, the one that was asked about or an earlier one, ended there."""
        partition, log = self.partition, self.partition.log
        cut = where_to_cut(log, log.high_watermark, leader_epoch, leader_end)
        if cut.offset < log.start_offset:
            self.anew = True
            return
        try:
            if cut.offset < log.end_offset:
                logger.info(
                    "%s: cut from offset %d to %d, which broker %d does not have",
                    partition, log.end_offset, cut.offset, self.leader_id,
                )  # fmt: skip
                if cut.offset < log.high_watermark:
                    logger.warning(
                        "%s: the cut is below the high watermark %d: records that readers could see are"
                        " gone, after an unclean election or the loss of a disk",
                        partition, log.high_watermark,
                    )  # fmt: skip
                log.truncate_to(cut.offset)
            # An epoch of ours in which nothing was written may stand at the end.
            log.epochs.truncate_end(cut.offset)
        except (LogError, OSError) as error:
            logger.error("%s: cannot cut back: %s", partition, error)
            self.delay(now)
            return
        self.truncated = cut.done or log.epochs.latest == UNDEFINED
