"""Which faults of a link run, in which order: pure, made from a seed alone, so that a run can be repeated.

Everything that a step may need is drawn whether its kind uses it or not: another kind shifts nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

LANES = 2
BROKERS = 2
"""On each side."""

# How often a kind comes.
WEIGHTS: Mapping[str, int] = {
    "kill_worker": 5,
    "pause_worker": 3,
    "stop_worker": 2,
    "kill_broker": 4,
    "pause_broker": 3,
    "restart_broker": 2,
    "kill_site": 1,
    "cut_path": 4,
    "cut_path_one_way": 3,
    "reset_path": 2,
    "slow_path": 4,
    "cut_brokers": 2,
    "cut_clients": 1,
    "new_topic": 1,
    "more_partitions": 1,
}
LETTING_GO: Mapping[str, int] = {**WEIGHTS, "delete_records": 6}
"""Where sources let go of records."""
LOSING: Mapping[str, int] = {**WEIGHTS, "lose_mirrors": 8}
"""Where targets lose acknowledged records."""


@dataclass(frozen=True, slots=True)
class Step:
    """One fault. `at_source`: of the drawn link, at its source's side, else at its target's."""

    kind: str
    link: int
    at_source: bool
    broker: int
    is_outgoing: bool
    """Of a cut one way: what the worker sends is held, else what it would hear."""
    seconds: float
    long: float
    """Beyond a lease: for pauses of workers."""
    delay_s: float
    bytes_per_s: float
    rest_s: float
    """Nothing more from this lane afterwards for this long."""


def steps(
    seed: int, lane: int, kinds: Sequence[str] | None = None, often: Mapping[str, int] = WEIGHTS
) -> Iterator[Step]:
    """Without end. `kinds` limits them; `often` says which there are, and how often each comes."""
    chance = random.Random(f"links {seed} {lane}")
    names = list(kinds or often)
    weights = [often[name] for name in names]
    while True:
        yield Step(
            kind=chance.choices(names, weights)[0],
            link=chance.randrange(2),
            at_source=chance.random() < 0.5,
            broker=chance.randrange(1, BROKERS + 1),
            is_outgoing=chance.random() < 0.5,
            seconds=chance.choice([0.5, 1.5, 3.0, 6.0, 12.0]),
            long=chance.choice([1.0, 6.0, 12.0, 25.0]),
            delay_s=chance.choice([0.02, 0.1, 0.3]),
            bytes_per_s=chance.choice([0.0, 200_000.0, 1_000_000.0]),
            rest_s=chance.uniform(0.5, 4.0),
        )
