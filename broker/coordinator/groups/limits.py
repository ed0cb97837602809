"""How long groups wait for what, and how large they get: settings and the names of deadlines."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Settings that bound groups; names as in Kafka's `group.*`, times in milliseconds."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3_000
    #: A parked join of a member that was never told its id cannot be kept alive by heartbeats: its limit.
    new_member_join_timeout_ms: int = 300_000


class Timer(Enum):
    """What a deadline of a group is for."""

    JOIN = "join"
    SYNC = "sync"
    SESSION = "session"


class TimerKey(NamedTuple):
    """A deadline of a group; `member_id` is empty for JOIN and SYNC."""

    group_id: str
    timer: Timer
    member_id: str = ""


class InitialDelay(NamedTuple):
    """How the first round of an empty group waits: the current step and what may still be added, in ms."""

    step_ms: int
    remaining_ms: int
