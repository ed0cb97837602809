"""Runs a runbook: step by step, each within its time, each in the journal, rolled back when it fails.

Knows nothing about Kafka: verbs come from the registry and get the `Context`. Time comes in as two functions,
so that the rules are tested without waiting.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dr_runbooks.journal import Journal
from dr_runbooks.load import SAVED
from dr_runbooks.models import Runbook, Step
from dr_runbooks.registry import NotYet, Result, StepFailed, Verb, verbs
from topology.models import Topology
from topology.runtime import Runtime

_log = logging.getLogger("isthmus.drill")

PROBE_PAUSE_S = 0.2

Status = Literal["passed", "failed", "skipped"]


@dataclass
class Context:
    """What a verb may use: the topology, where it runs, and what earlier steps saved."""

    topology: Topology
    runtime: Runtime
    file: Path
    saved: dict[str, Result] = field(default_factory=dict)


@dataclass(frozen=True)
class StepOutcome:
    name: str
    verb: str
    status: Status
    started_at: float
    seconds: float
    result: Result
    error: str | None
    owner: str | None


@dataclass(frozen=True)
class Outcome:
    """`passed` only when every step passed; a step that failed with `continue` still fails the drill."""

    title: str
    passed: bool
    seconds: float
    steps: tuple[StepOutcome, ...]
    rolled_back: tuple[StepOutcome, ...]
    saved: dict[str, Result]


class Engine:
    def __init__(
        self,
        context: Context,
        journal: Journal,
        *,
        report: Callable[[str], None] = lambda line: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._context = context
        self._journal = journal
        self._report = report
        self._now = now

    async def run(self, runbook: Runbook) -> Outcome:
        started = self._now()
        self._journal.write("run-started", started, title=runbook.title, parameters=runbook.parameters)
        steps: list[StepOutcome] = []
        rolled_back: list[StepOutcome] = []
        try:
            for step in runbook.steps:
                outcome = await self._step(step)
                steps.append(outcome)
                if outcome.status == "failed" and step.on_failure == "stop":
                    if runbook.rollback:
                        self._report("rolling back:")
                    rolled_back = [await self._step(back, part="rollback") for back in runbook.rollback]
                    break
        except asyncio.CancelledError:
            self._journal.write("run-interrupted", self._now(), steps=len(steps))
            raise
        ended = self._now()
        passed = len(steps) == len(runbook.steps) and all(step.status == "passed" for step in steps)
        self._journal.write("run-ended", ended, passed=passed, seconds=round(ended - started, 3))
        return Outcome(
            title=runbook.title,
            passed=passed,
            seconds=ended - started,
            steps=tuple(steps),
            rolled_back=tuple(rolled_back),
            saved=self._context.saved,
        )

    async def _step(self, step: Step, part: Literal["steps", "rollback"] = "steps") -> StepOutcome:
        started = self._now()
        kind: Literal["action", "probe"] = "action" if step.action is not None else "probe"
        verb = verbs()[kind, step.verb]
        self._journal.write(
            "step-started", started, step=step.name, part=part, verb=step.verb, arguments=step.arguments
        )
        result: Result = {}
        error: str | None = None
        try:
            result = await self._perform(verb, step)
        except StepFailed as failure:
            error = str(failure)
        except Exception as failure:  # noqa: BLE001 - a fault in a verb must still roll back
            _log.exception("step '%s' (%s)", step.name, step.verb)
            error = (
                f"{type(failure).__name__}: {failure}"  # a failed step like any other: rolled back, recorded
            )
        ended = self._now()
        status: Status = "failed" if error is not None else "passed"
        if step.save is not None:
            self._context.saved[step.save] = result
        self._journal.write(
            "step-ended",
            ended,
            step=step.name,
            part=part,
            status=status,
            seconds=round(ended - started, 3),
            result=result,
            error=error,
        )
        mark = "ok" if error is None else "FAILED"
        self._report(f"  {mark:<6} {step.name} ({ended - started:.1f} s)" + (f": {error}" if error else ""))
        return StepOutcome(step.name, step.verb, status, started, ended - started, result, error, step.owner)

    async def _perform(self, verb: Verb, step: Step) -> Result:
        arguments = _with_saved(step.arguments, self._context.saved)
        last = "it did not answer"
        limit = asyncio.timeout(step.timeout_seconds)
        try:
            async with limit:
                while True:
                    try:
                        return await verb.function(self._context, **arguments)
                    except NotYet as seen:
                        last = str(seen)
                    await asyncio.sleep(PROBE_PAUSE_S)
        except TimeoutError:
            if not limit.expired():
                raise  # the verb's own: of a socket, say
            raise StepFailed(f"not within {step.timeout_seconds:g} s: {last}") from None


def _with_saved(node: Any, saved: dict[str, Result]) -> Any:
    if isinstance(node, dict):
        return {key: _with_saved(value, saved) for key, value in node.items()}
    if isinstance(node, list):
        return [_with_saved(value, saved) for value in node]
    if not isinstance(node, str):
        return node
    whole = SAVED.fullmatch(node)
    if whole is not None:
        return _saved_value(whole, saved)
    return SAVED.sub(lambda match: str(_saved_value(match, saved)), node)


def _saved_value(match: re.Match[str], saved: dict[str, Result]) -> Any:
    try:
        return saved[match["name"]][match["field"]]
    except KeyError:
        raise StepFailed(f"{match[0]}: no earlier step saved that") from None
