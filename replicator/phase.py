"""How far the process of a link has come before it copies: what it waits for, since when, why, what to do.

Owns the steps and their words. A step takes moments where nothing is wrong, so what people see of one is
mostly why it takes longer. Knows neither clusters nor how to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from replicator.troubles import Trouble, now_ms

CONNECTING: Final = "connecting"
STARTING: Final = "starting"
RUNNING: Final = "running"
STOPPING: Final = "stopping"


_MOMENTS_MS: Final = 3000


class Step(NamedTuple):
    """`job` is whose trouble is this step's; `to_do` holds where the trouble itself does not say."""

    state: str
    waits_for: str = ""
    to_do: str = ""
    job: str = ""


CLUSTERS: Final = Step(
    CONNECTING, "an answer of both clusters", "look at the addresses, the network between, and their brokers"
)
PROGRESS: Final = Step(
    STARTING,
    "its progress topic at the target",
    "see what is missing there: isthmus links check LINK",
    "progress topic",
)
CLAIM: Final = Step(
    STARTING,
    "the word that no other process runs this link",
    "nothing: an owner that is gone is replaced after ten seconds",
    "lease",
)
WORKERS: Final = Step(
    STARTING,
    "the group of the link's workers to let it in",
    "nothing for some seconds; then look at the other workers: one that hangs holds up the group until"
    " worker_session_timeout_s is over",
    "workers",
)
WISHES: Final = Step(
    STARTING,
    "what was asked for by command",
    "see what is missing at the target: isthmus links check LINK",
    "control",
)
FIRST: Final = Step(
    STARTING,
    "its first start to be noted",
    "see what is missing: isthmus links check LINK",
    "start",
)
FENCING: Final = Step(
    STARTING,
    "the end of what workers that are gone have open",
    "nothing while the target's transaction coordinator answers: it aborts what they left open after"
    " transaction_timeout_s",
    "start",
)
TAKE_OVER: Final = Step(
    STARTING,
    "what MirrorMaker 2 has left behind to be read",
    "nothing: that takes as long as reading its offset syncs and what it copied after them",
    "start",
)
MIRRORS: Final = Step(
    STARTING,
    "its mirrors at the target to be found, or made",
    "see what is missing: isthmus links check LINK",
    "topics",
)
COPIES: Final = Step(RUNNING)
ENDS: Final = Step(STOPPING, "what is on its way to arrive")


class Phase:
    """Of one process of a link. `since_ms` is when the step of this moment began."""

    def __init__(self, step: Step, clock_ms: Callable[[], int] = now_ms) -> None:
        self._clock_ms = clock_ms
        self.step = step
        self.since_ms = clock_ms()

    @property
    def state(self) -> str:
        return self.step.state

    def enter(self, step: Step) -> None:
        """Entering the step that it is in changes nothing: what is tried again waits since the first time."""
        if step is not self.step:
            self.step, self.since_ms = step, self._clock_ms()

    def to_json(self, trouble: Trouble | None = None, *, link: str) -> dict[str, Any]:
        """`trouble`: why the step takes longer. `since_ms` is of this machine's clock. There is nothing to do
        about a step that has just begun."""
        long = trouble is not None or self._clock_ms() - self.since_ms >= _MOMENTS_MS
        to_do = trouble.to_do if trouble is not None and trouble.to_do else self.step.to_do if long else ""
        return {
            "state": self.state,
            "waits_for": self.step.waits_for,
            "since_ms": self.since_ms,
            "reason": trouble.what if trouble is not None else "",
            "to_do": to_do.replace("LINK", f"'{link}'"),
        }
