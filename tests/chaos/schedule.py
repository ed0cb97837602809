"""Which faults, in which order: pure, made from a seed alone, so that a run can be repeated.

Two lanes draw independently, so that each fault meets every other one. What a step needs is drawn whether its
kind uses it or not: another victim at run time (a role is resolved then) shifts nothing that comes later.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

LANES = 2

# How often a kind comes; what takes long comes less often.
WEIGHTS: Mapping[str, int] = {
    "kill": 4,
    "kill_ahead": 2,
    "pause": 4,
    "restart": 2,
    "kill_zookeeper": 2,
    "pause_zookeeper": 2,
    "restart_zookeeper": 1,
    "clock_jump": 2,
    "full_disk": 1,
    "cut_brokers": 3,
    "cut_one_way": 3,
    "isolate": 2,
    "cut_zookeeper": 2,
    "cut_clients": 2,
    "cut_quorum": 1,
    "slow_brokers": 2,
    "slow_zookeeper": 1,
    "slow_clients": 1,
    "late_orders": 1,
    "lose_tail": 1,
    "return_ahead": 1,
    "deposed_unheard": 1,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One fault. `role` is `any` (`victim`), `controller` or `leader`; `share` is in [0, 1)."""

    kind: str
    role: str
    victim: int
    other: int
    is_one_way: bool
    is_reset: bool
    seconds: float
    share: float
    rest_s: float
    """Nothing more from this lane afterwards for this long."""


def steps(seed: int, lane: int, kinds: Sequence[str] | None = None) -> Iterator[Step]:
    """Without end. `kinds` limits them."""
    chance = random.Random(f"{seed} {lane}")
    names = list(kinds or WEIGHTS)
    weights = [WEIGHTS[name] for name in names]
    while True:
        victim = chance.randrange(1, 4)
        yield Step(
            kind=chance.choices(names, weights)[0],
            role=chance.choices(["any", "leader", "controller"], [2, 2, 1])[0],
            victim=victim,
            other=(victim + chance.randrange(2)) % 3 + 1,
            is_one_way=chance.random() < 0.5,
            is_reset=chance.random() < 0.3,
            seconds=chance.choice([0.2, 1.0, 2.5, 4.5, 8.0]),
            share=chance.random(),
            rest_s=chance.uniform(0.5, 4.0),
        )
