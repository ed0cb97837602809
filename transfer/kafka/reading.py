"""A partition that is being read: where it stands, whom to ask, and whether it may be asked for now."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from protocol.types import ZERO_UUID, TopicPartition
from transfer.epochs import Epochs

_FIRST_BACKOFF_S: Final = 0.05
_LONGEST_BACKOFF_S: Final = 2.0


@dataclass(slots=True, eq=False)
class Reading:
    """One open partition."""

    tp: TopicPartition
    position: int
    topic_id: bytes = ZERO_UUID
    leader: int = -1
    leader_epoch: int = -1
    last_epoch: int = -1
    epochs: Epochs = field(default_factory=Epochs)
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    asked: bool = False
    asked_by: int = -1
    """The connection to its leader that asked last; -1: none has yet."""
    served_at: float = 0.0
    """When it last had data."""
    heard_at: float = 0.0
    """When an answer last told how far it is, be there something new or not."""
    refused_at: float = 0.0
    """When one told first after that that it is not to be had."""
    paused: bool = False
    closed: bool = False
    not_before: float = 0.0
    attempts: int = 0

    @property
    def catches_up(self) -> bool:
        """Whether the last answer left readable records behind."""
        return self.position < self.last_stable_offset

    def ready(self, now: float) -> bool:
        """Whether the next Fetch may ask for it."""
        return not (self.asked or self.paused or self.closed) and now >= self.not_before

    def refused(self, now: float) -> None:
        """An answer tells why it gives nothing of it."""
        if self.refused_at <= self.heard_at:
            self.refused_at = now
        self.back_off(now)

    def answered(self, now: float) -> None:
        """An answer is taken in that was asked for it: it told how far it is, if no trouble."""
        self.asked = False
        if not self.attempts:
            self.heard_at = now

    def unseen_s(self, now: float) -> float:
        """For how long nobody saw what is written to it, before it was known to have gone."""
        return (self.refused_at if self.refused_at > self.heard_at else now) - self.heard_at

    def move(self, leader: int) -> None:
        """The next Fetch goes to this broker."""
        self.leader, self.asked_by = leader, -1

    def back_off(self, now: float) -> None:
        """Waits longer after each failure in a row."""
        self.not_before = now + min(_FIRST_BACKOFF_S * 2**self.attempts, _LONGEST_BACKOFF_S)
        self.attempts = min(self.attempts + 1, 10)
