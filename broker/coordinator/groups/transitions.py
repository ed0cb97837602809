"""How time and the disk come back to a group: a deadline that passed, a write that ended."""

from __future__ import annotations

from broker.coordinator.groups.departing import on_session_deadline
from broker.coordinator.groups.events import Store, StoreReason
from broker.coordinator.groups.group import Group
from broker.coordinator.groups.joining import replacement_stored
from broker.coordinator.groups.limits import Timer, TimerKey
from broker.coordinator.groups.rebalance import on_join_deadline, on_sync_deadline
from broker.coordinator.groups.syncing import assignment_stored
from broker.coordinator.instant import Instant
from protocol.errors import ErrorCode


def on_deadline(group: Group, key: TimerKey, now: Instant) -> None:
    """A deadline of the group has passed."""
    if key.timer is Timer.JOIN:
        on_join_deadline(group, now)
    elif key.timer is Timer.SYNC:
        on_sync_deadline(group, now)
    else:
        on_session_deadline(group, key.member_id, now)


def on_stored(group: Group, store: Store, error: ErrorCode, now: Instant) -> None:
    """A write that the group asked for has ended with `error`, a code that its members understand."""
    if store.reason is StoreReason.ASSIGNMENT:
        assignment_stored(group, store, error, now)
    elif store.reason is StoreReason.REPLACED_MEMBER:
        replacement_stored(group, store, error, now)
