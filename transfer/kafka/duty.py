"""Tasks that must not end by themselves: their fault becomes the fault of the whole endpoint.

Without this a task that died of an unforeseen exception would leave its partitions standing still while
everything else looks well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from transfer.eager import start
from transfer.endpoint import BrokenEndpointError

Broken = Callable[[BrokenEndpointError], None]


def on_duty(
    work: Coroutine[Any, Any, None], broken: Broken, *, at_once: bool = False
) -> asyncio.Future[None]:
    """Runs `work` as a task that the caller owns; `broken` hears of any fault that ends it. `at_once`: see
    `transfer.eager`.
    """
    task = start(work) if at_once else asyncio.create_task(work)

    def ended(task: asyncio.Future[None]) -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            report(fault, broken)

    task.add_done_callback(ended)
    return task


def report(fault: BaseException, broken: Broken) -> None:
    """Tells of an unforeseen fault, also one of a call that no task makes."""
    error = BrokenEndpointError(f"an unforeseen fault: {fault!r}")
    error.__cause__ = fault
    broken(error)
