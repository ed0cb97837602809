"""Whether an acknowledged record may be missing, as its topic's rules let go of it: pure.

Goes by numbers, since offsets change where a topic is copied back by a link that translates: values are
numbered in the order in which they are sent, and of each acknowledged one is known how many had been sent by
then (its mark). So one that had its mark before another was sent stands before that other one in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from tests.chaos.mirrors.history import History, Place
from tests.chaos.mirrors.topics import End, keeps

Rows = Sequence[tuple[int, bytes]]


def number_of(name: bytes) -> int:
    return int(name.rpartition(b"/")[2])


def may_be_gone(
    place: Place, rows: Rows, history: History, end: End, cut_off: Iterable[Collection[bytes]] = ()
) -> Callable[[bytes], bool]:
    """Asked of names that are not among the `rows` that readers may read there. `cut_off`: what was saved of
    each stretch that a side had of its own there."""
    topic = keeps(place[0])
    if topic.keys:
        in_log = _superseded((name for _, name in rows), history)
        in_stretches = [_superseded_within(names, history) for names in cut_off if names]
        return lambda name: in_log(name) or any(within(name) for within in in_stretches)
    if topic.is_tail:
        return _before(place, rows, history, end)
    return lambda name: False


def _superseded_within(names: Collection[bytes], history: History) -> Callable[[bytes], bool]:
    """It stood in that stretch, and a later one of its key is saved: what both sides had is no side's own."""
    first = min((history.written[name].mark for name in names if name in history.written), default=None)
    later = _superseded(names, history)
    return lambda name: first is not None and first < number_of(name) and later(name)


def _superseded(names: Iterable[bytes], history: History) -> Callable[[bytes], bool]:
    """A later one of its key is there."""
    newest: dict[bytes | None, float] = {}
    for name in names:
        written = history.written.get(name)
        mark = float("inf") if written is None else written.mark  # sent, and nobody knows when it was stored
        key = history.keys.get(name)
        newest[key] = max(newest.get(key, 0), mark)
    return lambda name: newest.get(history.keys.get(name), 0) >= number_of(name)


def _before(place: Place, rows: Rows, history: History, end: End) -> Callable[[bytes], bool]:
    """It stood before all that is there, and was too old, too much, or deleted by request."""
    topic = keeps(place[0])
    marks = [history.written[name].mark for _, name in rows if name in history.written]
    first = min(marks, default=float("inf"))
    # Half: of what the source counted, a failover may have lost the end.
    too_much = 0 < topic.retention_bytes <= 2 * end.bytes.get(place, 0)

    def gone(name: bytes) -> bool:
        if number_of(name) > first:
            return False
        too_old = topic.retention_ms and end.now_ms - history.written[name].at_ms >= topic.retention_ms
        return bool(too_old) or too_much or number_of(name) <= end.trimmed.get(place, 0)

    return gone
