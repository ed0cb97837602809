"""Who copies what: level, sticky, and nothing moves that need not, whatever comes and goes."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from protocol.types import TopicPartition
from replicator.workers.assignment import SLACK, assign, granted, uneven, weights

WORKERS = [f"w{i}" for i in range(6)]
PARTITIONS = [TopicPartition(topic, n) for topic in ("a", "b", "c") for n in range(8)]

rates_of = st.dictionaries(st.sampled_from(PARTITIONS), st.floats(0, 1e9), max_size=len(PARTITIONS))


@st.composite
def worlds(draw):
    """Workers with disjoint holdings, partitions that there are, rates."""
    workers = draw(st.lists(st.sampled_from(WORKERS), min_size=1, unique=True))
    partitions = draw(st.lists(st.sampled_from(PARTITIONS), unique=True))
    held = {worker: set() for worker in workers}
    for tp in PARTITIONS:
        worker = draw(st.sampled_from([*workers, None]))
        if worker is not None:
            held[worker].add(tp)
    return held, partitions, draw(rates_of)


@given(worlds())
def test_each_partition_has_one_worker_and_nothing_else_is_given_out(world):
    held, partitions, rates = world
    plan = assign(held, partitions, weights(partitions, rates))
    given_out = Counter(tp for has in plan.values() for tp in has)
    assert given_out == Counter(partitions)
    assert plan.keys() == held.keys()


@given(worlds())
def test_what_is_given_out_moves_nothing_else(world):
    """The loss of a worker moves its partitions only, unless another would have nothing at all."""
    held, partitions, rates = world
    free = set(partitions) - {tp for has in held.values() for tp in has}
    plan = assign(held, partitions, weights(partitions, rates))
    had_nothing = any(not (has & set(partitions)) for has in held.values())
    if free and not had_nothing:
        for worker, has in held.items():
            assert plan[worker] >= has & set(partitions)


@given(worlds())
def test_a_plan_that_was_followed_is_kept(world):
    """No storms: asked again with the same rates, nothing moves; partitions do not go to and fro."""
    held, partitions, rates = world
    weight = weights(partitions, rates)
    plan = assign(held, partitions, weight)
    for _ in range(3):  # a round that gave out may be followed by one that levels, and no more than that
        before, plan = plan, assign(plan, partitions, weight)
    assert before == plan
    assert not uneven(plan, partitions, weight)


@given(worlds())
def test_it_is_level_as_far_as_single_partitions_allow(world):
    held, partitions, rates = world
    weight = weights(partitions, rates)
    plan = assign(held, partitions, weight)
    plan = assign(plan, partitions, weight)
    load = {worker: sum(weight[tp] for tp in has) for worker, has in plan.items()}
    mean = sum(load.values()) / len(load)
    low, high = min(load.values()), max(load.values())
    heaviest = max(sorted(plan), key=lambda worker: load[worker])
    assert low >= mean * (1 - SLACK) - 1e-6 or all(
        weight[tp] >= high - low - 1e-6 for tp in plan[heaviest]
    ), load


@given(st.integers(1, 6), st.integers(0, 24))
def test_idle_partitions_are_level_by_number(workers, partitions):
    tps = PARTITIONS[:partitions]
    plan = assign(dict.fromkeys(WORKERS[:workers], ()), tps, weights(tps, {}))
    sizes = [len(has) for has in plan.values()]
    assert max(sizes) - min(sizes) <= 1


def test_one_busy_partition_leaves_its_worker_little_else():
    tps = PARTITIONS[:9]
    weight = weights(tps, {tps[0]: 100e6} | dict.fromkeys(tps[1:], 1e6))
    plan = assign({"one": (), "two": ()}, tps, weight)
    assert plan["one"] == {tps[0]}
    assert plan["two"] == set(tps[1:])


def test_a_worker_that_comes_gets_its_share_and_no_more_than_that_moves():
    held = {"one": set(PARTITIONS[:12]), "two": set(PARTITIONS[12:])}
    plan = assign({**held, "new": set()}, PARTITIONS, weights(PARTITIONS, {}))
    moved = [tp for worker, has in held.items() for tp in has if tp not in plan[worker]]
    assert set(moved) == plan["new"]
    assert 7 <= len(moved) <= 8


def test_of_two_that_say_they_hold_one_only_one_keeps_it():
    tp = PARTITIONS[0]
    held = {"one": {tp}, "two": {tp}}
    plan = assign(held, [tp], {tp: 1.0})
    assert plan == {"one": {tp}, "two": set()}
    assert granted(plan, held) == {"one": set(), "two": set()}  # until two has given it up


@pytest.mark.parametrize("workers", [{}, {"one": ()}])
def test_nothing_to_share(workers):
    assert assign(workers, [], {}) == {worker: set() for worker in workers}


class Rounds(RuleBasedStateMachine):
    """Workers come, go, are killed and give up slowly; topics grow; rates change. Nobody ever has a partition
    that another still holds, and once all is quiet everything has a worker."""

    @initialize()
    def begin(self):
        self.held = {"w0": set()}
        self.giving = {"w0": set()}
        self.partitions = set(PARTITIONS[:6])
        self.rates = {}

    @rule(worker=st.sampled_from(WORKERS))
    def comes(self, worker):
        if worker not in self.held:
            self.held[worker], self.giving[worker] = set(), set()

    @rule(worker=st.sampled_from(WORKERS))
    def goes(self, worker):
        if len(self.held) > 1:
            self.held.pop(worker, None)
            self.giving.pop(worker, None)

    @rule(tp=st.sampled_from(PARTITIONS))
    def topic_grows(self, tp):
        self.partitions.add(tp)

    @rule(rates=rates_of)
    def traffic_changes(self, rates):
        self.rates = rates

    @rule(data=st.data())
    def gives_up(self, data):
        worker = data.draw(st.sampled_from(sorted(self.giving)))
        self.held[worker] -= self.giving[worker]
        self.giving[worker] = set()

    @rule()
    def round(self):
        claims = {worker: set(has) for worker, has in self.held.items()}
        plan = granted(assign(claims, self.partitions, weights(self.partitions, self.rates)), claims)
        for worker, may in plan.items():
            self.giving[worker] |= self.held[worker] - may
            self.held[worker] |= may - self.giving[worker]

    @invariant()
    def never_two(self):
        held = Counter(tp for has in getattr(self, "held", {}).values() for tp in has)
        assert not [tp for tp, count in held.items() if count > 1]

    def teardown(self):
        if not hasattr(self, "held"):
            return
        for _ in range(6):
            self.round()
            for worker, going in self.giving.items():
                self.held[worker] -= going
                self.giving[worker] = set()
        self.round()
        assert {tp for has in self.held.values() for tp in has} == self.partitions


TestRounds = Rounds.TestCase
TestRounds.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
