"""Which worker copies which partition: sticky, by weight, in two steps (pure; KIP-54's and KIP-429's ideas).

Owns the plan. What a worker holds stays with it; what nobody holds goes to whoever carries least. A round
that gives out such partitions moves nothing else, so the loss of a worker moves its partitions only. Else,
and for a worker that would have nothing, partitions move from the heaviest to the lightest, as few as do.
A partition that moves is first given up: `granted` leaves it out until no other worker says that it holds it.

A weight is a partition's bytes per second beside the mean of all, and a bit for each, since an idle partition
is not free; so with no traffic at all the numbers of partitions are level.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from protocol.types import TopicPartition

_IDLE = 0.25
"""Weight of a partition without traffic, where the mean is 1."""
SLACK = 0.2
"""Nothing is moved while the lightest worker carries this share less than the mean, or not even that."""

Plan = dict[str, set[TopicPartition]]


def weights(
    partitions: Collection[TopicPartition], rates: Mapping[TopicPartition, float]
) -> dict[TopicPartition, float]:
    """Of all partitions; `rates` are bytes per second; one that is not known yet counts as the mean."""
    known = [max(rates[tp], 0.0) for tp in partitions if tp in rates]
    mean = sum(known) / len(known) if known else 0.0
    if mean <= 0:
        return dict.fromkeys(partitions, 1.0)
    return {tp: _IDLE + max(rates.get(tp, mean), 0.0) / mean for tp in partitions}


def assign(
    held: Mapping[str, Collection[TopicPartition]],
    partitions: Collection[TopicPartition],
    weight: Mapping[TopicPartition, float],
) -> Plan:
    """Who shall have what, of all `partitions`; `held` has an entry for each worker. Deterministic."""
    plan: Plan = {worker: set() for worker in sorted(held)}
    if not plan:
        return plan
    free = set(partitions)
    for worker in plan:  # two that say they hold one: the first keeps it, the other gives it up
        kept = free.intersection(held[worker])
        plan[worker] = kept
        free -= kept
    load = {worker: sum(weight[tp] for tp in has) for worker, has in plan.items()}
    for tp in sorted(free, key=lambda tp: (-weight[tp], tp)):
        lightest = _lightest(plan, load)
        plan[lightest].add(tp)
        load[lightest] += weight[tp]
    _even_out(plan, load, weight, only_idle=bool(free))
    return plan


def _even_out(
    plan: Plan, load: dict[str, float], weight: Mapping[TopicPartition, float], *, only_idle: bool
) -> None:
    mean = sum(load.values()) / len(load)
    idle = {worker for worker, has in plan.items() if not has}
    for _ in range(sum(map(len, plan.values()))):
        lightest = _lightest(plan, load)
        if load[lightest] >= mean * (1 - SLACK) or (only_idle and lightest not in idle):
            return
        heaviest = max(sorted(plan), key=lambda worker: load[worker])
        difference = load[heaviest] - load[lightest]
        # Half of the difference would make both level; anything below the whole of it makes them more level.
        movable = [tp for tp in plan[heaviest] if weight[tp] < difference - 1e-9]
        if not movable:
            return
        tp = min(movable, key=lambda tp: (abs(weight[tp] - difference / 2), tp))
        plan[heaviest].discard(tp)
        plan[lightest].add(tp)
        load[heaviest] -= weight[tp]
        load[lightest] += weight[tp]


def _lightest(plan: Plan, load: Mapping[str, float]) -> str:
    return min(sorted(plan), key=lambda worker: (load[worker], len(plan[worker])))


def granted(plan: Plan, held: Mapping[str, Collection[TopicPartition]]) -> Plan:
    """What each may have now: of `plan` what no other worker holds still."""
    holders: dict[TopicPartition, set[str]] = {}
    for worker, has in held.items():
        for tp in has:
            holders.setdefault(tp, set()).add(worker)
    return {
        worker: {tp for tp in has if holders.get(tp, {worker}) <= {worker}} for worker, has in plan.items()
    }


def uneven(
    held: Mapping[str, Collection[TopicPartition]],
    partitions: Collection[TopicPartition],
    weight: Mapping[TopicPartition, float],
) -> bool:
    """Whether a plan without anything to give out would move something."""
    plan = assign(held, partitions, weight)
    return any(set(has) != plan[worker] for worker, has in held.items())
