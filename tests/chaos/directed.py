"""For each safety rule the story that makes it matter, and what clients see where it is switched off. Pure.

Faults at random find a missing rule by luck of timing; these find it every time. One story is told once, with
few clients and one ZooKeeper server: nothing else should happen in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from tests.chaos.schedule import Step, steps

CLIENTS = "pqaocu"
"""Letters of `workload.JOBS`."""
SETTINGS: Mapping[str, str] = {"zookeeper.session.timeout.ms": "5000", "replica.lag.time.max.ms": "5000"}
"""Nobody is lost by himself on a busy machine."""


class Story(NamedTuple):
    """`shows` are the anomalies of `checker` that have to be found, each of them."""

    kind: str
    shows: frozenset[str]


STORIES: Mapping[str, Story] = {
    # Acknowledged by a leader alone, which then dies.
    "high_watermark": Story("return_ahead", frozenset({"lost"})),
    # What a leader had alone stays where others have written since, and it leads again.
    "truncation": Story("return_ahead", frozenset({"inconsistent_offset"})),
    # Acknowledged by a leader that is the only one left, and loses power.
    "min_isr": Story("lose_tail", frozenset({"lost"})),
    # Acknowledged by a leader that another one has replaced, and who was believed all the same.
    "epoch_fencing": Story("deposed_unheard", frozenset({"lost"})),
}
"""By the names of `broken.RULES`."""


def step_of(rule: str, seed: int) -> Step:
    """The story's one step: who it happens to is the seed's."""
    drawn = next(steps(seed, 0, [STORIES[rule].kind]))
    return replace(drawn, seconds=0.2, rest_s=0.0)
