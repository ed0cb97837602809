"""What a partition of the target has acknowledged, by leader epochs: whether a new leader has all of that.

Owns the comparison, pure. An unclean election takes acknowledged records away, and what others write in their
place (records, markers, what is aborted) hides that: offsets alone do not tell (KIP-101, KIP-320).
"""

from __future__ import annotations

from transfer.epochs import Epochs


class Written:
    """Of one partition: up to where, and in which epochs."""

    __slots__ = ("_noted", "end", "epoch", "epochs", "lost_end", "settled_end")

    def __init__(self, epochs: Epochs | None = None, end: int = -1, lost_end: int = 0) -> None:
        """`epochs` of what was acknowledged up to offset `end`; the leader that has it all is of the last of
        them, or of a later one. `lost_end`: how far it once was, before it was lost there."""
        self.epochs = epochs.copy() if epochs is not None else Epochs()
        self.end = end
        """Offset behind what was acknowledged last; -1: nothing was."""
        self.epoch = self.epochs.last
        """Leader epoch by which the leader is known that has all of it; -1: none that tells its epoch."""
        self.settled_end = end
        """The same of what readers see: with transactions, of those that were committed."""
        self._noted = self.epoch
        self.lost_end = lost_end

    def acknowledged(self, base_offset: int, records: int) -> None:
        """The leader took that many records there."""
        if base_offset < self.end:  # something is lost there
            self.epochs.cut(base_offset)
            self.lost_end = max(self.lost_end, self.end)
            self._noted = -1
        if self._noted != self.epoch:
            self.epochs.reached(self.epoch, base_offset)
            self._noted = self.epoch
        self.end = base_offset + records

    def settle(self) -> None:
        """All of it is committed."""
        self.settled_end = self.end

    @property
    def is_settled(self) -> bool:
        """Whether all of it is committed."""
        return self.settled_end == self.end

    def led_by(self, epoch: int) -> None:
        """A leader of this epoch has all of it."""
        self.epoch = max(self.epoch, epoch)
        if self.epochs.last < 0 <= self.epoch and self.end > 0:  # of what was written before, none is known
            self.epochs.reached(self.epoch, self.end)
            self._noted = self.epoch

    def doubts(self, epoch: int) -> bool:
        """Whether a leader of this epoch has to be asked first: also where all is lost that there was."""
        return epoch > self.epoch >= 0 and (self.end > 0 or self.lost_end > 0)

    def other(self, epoch: int) -> bool:
        """Whether a leader of this epoch is of another history: its cluster was restored to an earlier state,
        or who named it has not heard of the leader yet."""
        return -1 < epoch < self.epoch and self.end > 0

    def kept(self, epoch: int, end: int) -> bool:
        """Whether a log has all of it, and nothing that was taken for lost: one that has no epoch of it
        behind `epoch`, which ends at `end` there."""
        if epoch < 0:
            return True
        common_end = self.epochs.common_end(epoch, end)
        return (
            self.epochs.floor(epoch) in (epoch, -1)
            and common_end >= self.end
            and (common_end == end or common_end >= self.lost_end)
        )
