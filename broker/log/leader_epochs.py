"""Which leader epoch wrote which offsets of a partition (KIP-101, KIP-279; Kafka's LeaderEpochFileCache).

Owns the list of (epoch, start offset), rising in both, and its checkpoint file. Followers and clients ask it
where an epoch ended, to find out from where on their copies differ.
"""

from bisect import bisect_left, bisect_right
from typing import Final

from broker.log.checkpoints import read_epochs, write_epochs

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class LeaderEpochs:
    __slots__ = ("_begun", "_epochs", "_path", "_starts", "_stored", "latest")

    def __init__(self, path: str) -> None:
        self._path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED_EPOCH
        """Of the last record, as far as is known."""
        self._begun = UNDEFINED_EPOCH
        """A leader's term that has no record yet."""
        self._stored: list[tuple[int, int]] | None = None
        """What the file holds, where `trim` has left it behind; None: the same as is known here."""

    def load(self) -> None:
        """Read the file; raises `CheckpointDamaged` when it cannot be understood."""
        for epoch, start in read_epochs(self._path):
            self._put(epoch, start)

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def begin(self, epoch: int) -> None:
        """A leader's term begins at the log's end. Its entry and the file come with its first record: after
        the loss of a broker thousands of terms begin at once, and most of their partitions are idle.
        """
        self._begun = epoch

    @property
    def current(self) -> int:
        """The latest term, with or without a record of it; -1 when unknown."""
        return max(self.latest, self._begun)

    def assign(self, epoch: int, start_offset: int) -> None:
        """The epoch writes from `start_offset` on. On OSError nothing has changed."""
        if epoch < 0 or (self._epochs and epoch == self._epochs[-1]):
            return
        before = (self._epochs[:], self._starts[:])
        self._put(epoch, start_offset)
        self._save_or(before)

    def note(self, epoch: int, offset: int) -> None:
        """A batch of the epoch is at that offset, says recovery, which reads on to the log's end; nothing is
        written until `save`. What is known stays where batches do not contradict it: an epoch that covers
        the offset began before what is read."""
        if epoch < 0 or self.epoch_at(offset) == epoch:
            return
        known = bisect_left(self._epochs, epoch)
        if known < len(self._epochs) and self._epochs[known] == epoch:
            offset = min(offset, self._starts[known])
        self._put(epoch, offset)

    def _put(self, epoch: int, start_offset: int) -> None:
        """Entries that contradict the new one are of a history that was truncated: they go."""
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(epoch, end offset) for OffsetForLeaderEpoch: the largest epoch not above the asked one and where
        it ended.

        (-1, -1) when that is not known.
        """
        epochs, starts = self._epochs, self._starts
        if self.current != self.latest:  # a term without a record counts as one that starts at the end
            epochs, starts = [*epochs, self._begun], [*starts, log_end]
        if epoch == UNDEFINED_EPOCH or not epochs or epoch > epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == epochs[-1]:
            return epoch, log_end
        above = bisect_right(epochs, epoch)
        return (epochs[above - 1] if above else epoch), starts[above]

    def epoch_at(self, offset: int) -> int:
        """Epoch that wrote `offset`, -1 when unknown."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else UNDEFINED_EPOCH

    def truncate_end(self, end_offset: int) -> None:
        """Forget epochs that start at or after the new log end."""
        before = (self._epochs[:], self._starts[:])
        if self._drop_from(end_offset):
            self._save_or(before)

    def truncate_start(self, start_offset: int) -> None:
        """Forget epochs that ended before the new log start; the one that covers it now begins there."""
        before = (self._epochs[:], self._starts[:])
        if self._drop_below(start_offset):
            self._save_or(before)

    def trim(self, start_offset: int, end_offset: int) -> None:
        """Both truncations for a log that is opened. The file follows with the next change: an empty log
        forgets its epoch at each start and gets the same again when its leader is known, and a file that is
        left behind is trimmed by the next start as well.
        """
        before = self.entries()
        self._drop_from(end_offset)
        self._drop_below(start_offset)
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        if self._stored is None and self.entries() != before:
            self._stored = before

    def _drop_from(self, end_offset: int) -> bool:
        keep = bisect_left(self._starts, end_offset)
        drops = keep < len(self._starts)
        del self._epochs[keep:], self._starts[keep:]
        return drops

    def _drop_below(self, start_offset: int) -> bool:
        first = bisect_right(self._starts, start_offset) - 1
        if first < 0 or self._starts[first] == start_offset == self._starts[0]:
            return False
        del self._epochs[:first], self._starts[:first]
        self._starts[0] = start_offset
        return True

    def clear(self) -> None:
        before = (self._epochs, self._starts)
        self._epochs, self._starts = [], []
        self._save_or(before)

    def save(self) -> None:
        # Not synced: after a power cut recovery takes the epochs from the batches of the tail again.
        entries = self.entries()
        if entries != self._stored:
            write_epochs(self._path, entries, sync=False)
        self._stored = None

    def _save_or(self, before: tuple[list[int], list[int]]) -> None:
        try:
            self.save()
        except OSError:
            self._epochs, self._starts = before
            raise
        finally:
            self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
