"""How a link stands as a whole, put together from what its workers say of themselves. Pure.

Owns the words for links that copy nothing: a table without rows says neither that, nor why, nor what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from replicator.phase import RUNNING
from replicator.workers.control import Wish
from replicator.workers.report import WorkerReport

NOT_RUNNING: Final = "not running"
PAUSED: Final = "paused"


def link_standing(
    workers: Sequence[WorkerReport],
    link: str,
    *,
    known: bool,
    source_problem: str = "",
    paused: Wish | None = None,
    handed_back_ms: int = 0,
) -> dict[str, Any]:
    """`state`, `waits_for`, `since_ms` (None: not known), `reason`, `to_do`.

    `known`: the link has a progress topic at the target. `paused`: who has paused all of it, and why.
    `handed_back_ms`: since when MirrorMaker 2 copies; 0: it does not.
    """
    fresh = [one for one in workers if not one.silent]
    if not fresh and handed_back_ms:
        to_do = "nothing while MirrorMaker 2 is to copy; else stop that first, then start the link"
        reason = "MirrorMaker 2 has its work"
        return _standing(NOT_RUNNING, since_ms=handed_back_ms, reason=reason, to_do=to_do)
    if not fresh:
        return _nobody(workers, link, known=known, source_problem=source_problem)
    ends = link.split("->")
    copying = [one for one in fresh if one.standing.get("state", RUNNING) == RUNNING]
    if copying:
        began = min(one.standing.get("since_ms", one.began_ms) for one in copying)
        if paused is not None:
            to_do = f"let it go on with isthmus links resume '{link}'"
            return _standing(PAUSED, since_ms=paused.at_ms, reason=f"paused {paused}", to_do=to_do)
        silent = next((one.problems[alias] for one in copying for alias in ends if alias in one.problems), "")
        return _standing(RUNNING, since_ms=began, reason=silent)
    first = min(fresh, key=lambda one: (not one.leads, one.began_ms))  # others wait for the leader
    return _standing(**{name: first.standing[name] for name in _standing("") if name in first.standing})


def _nobody(
    workers: Collection[WorkerReport], link: str, *, known: bool, source_problem: str
) -> dict[str, Any]:
    start = f"start it (isthmus replicate FILE --link '{link}'), or see in its log what it waits for"
    if workers:
        last = max(workers, key=lambda one: one.at_ms)
        reason = f"its last process, {last.worker}, has said nothing since then"
        return _standing(NOT_RUNNING, since_ms=last.at_ms, reason=reason, to_do=start)
    reason = "no process has told the target that it runs this link" + ("" if known else ", ever")
    if source_problem:
        reason += f"; asked from here, its source: {source_problem}"
    return _standing(NOT_RUNNING, reason=reason, to_do=start)


def has_ended(code: int, at_ms: int) -> dict[str, Any]:
    """Of a link that runs no more in a process that goes on with others."""
    reason = f"it has ended with exit code {code}, its process goes on with other links"
    to_do = "see the log of the process, mend what it names, and start it again"
    return _standing(NOT_RUNNING, since_ms=at_ms, reason=reason, to_do=to_do)


def _standing(
    state: str, waits_for: str = "", since_ms: int | None = None, reason: str = "", to_do: str = ""
) -> dict[str, Any]:
    return {
        "state": state,
        "waits_for": waits_for,
        "since_ms": since_ms,
        "reason": reason,
        "to_do": to_do,
    }


def in_words(standing: Mapping[str, Any], when: str) -> list[str]:
    """Lines for people; `when` is `since_ms` in words."""
    since = f" since {when}" if when else ""
    waits = f", waits for {standing['waits_for']}" if standing["waits_for"] else ""
    why = f": {standing['reason']}" if standing["reason"] else ""
    lines = [f"state: {standing['state']}{since}{waits}{why}"]
    return [*lines, f"to do: {standing['to_do']}"] if standing["to_do"] else lines
