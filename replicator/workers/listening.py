"""Who of a link's processes is silent, whatever the clocks of other machines say.

Owns waiting for their next record where clocks leave it open: a worker writes one every few seconds, so who
lives is heard, and who is not heard is gone. A process that reads all the time anyway goes by when it heard
them itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, Protocol

from replicator.progress import Progress
from replicator.troubles import now_ms
from replicator.workers.report import EVERY_S, RESTS_S, STALE_S, WorkerReport, reports

_LISTEN_S: Final = EVERY_S + RESTS_S + 0.5
_LOOK_S: Final = 0.3
_AHEAD_MS: Final = 1000
"""So far ahead of this machine's a clock may be that counts as the same."""


class Read(Protocol):
    """A `ProgressStore`, as far as this needs one."""

    async def refresh(self) -> Progress: ...


async def listened(store: Read, progress: Progress) -> list[WorkerReport]:
    """All processes on record, with who of them is silent. Who spoke just now by this machine's clock is not;
    others have a few seconds to do so. Raises ProtocolError."""
    loop = asyncio.get_running_loop()
    until, now = loop.time() + _LISTEN_S, now_ms()
    before = reports(progress.notes)
    silent = {
        one.incarnation: one.at_ms for one in before if not -_AHEAD_MS <= now - one.at_ms < STALE_S * 1000
    }
    while silent and loop.time() < until:
        await asyncio.sleep(_LOOK_S)
        progress = await store.refresh()
        before = reports(progress.notes)
        said = {one.incarnation: one.at_ms for one in before}
        silent = {key: at for key, at in silent.items() if said.get(key) == at}
    return [replace(one, silent=one.incarnation in silent) for one in before]


class Hearing:
    """Of a process that sees the records as they come; `now` is its clock (s), which nobody sets."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._heard: dict[str, tuple[int, float]] = {}
        """By incarnation: what it said when, and when that was seen first."""

    def judged(self, said: Iterable[WorkerReport]) -> list[WorkerReport]:
        """The same, with who is silent: that no other record has come of for `STALE_S`."""
        now, heard = self._now(), self._heard
        found = list(said)
        self._heard = {
            one.incarnation: known
            if (known := heard.get(one.incarnation)) is not None and known[0] == one.at_ms
            else (one.at_ms, now)
            for one in found
        }
        return [replace(one, silent=now - self._heard[one.incarnation][1] >= STALE_S) for one in found]
