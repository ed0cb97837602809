"""The plan of declared topics: what is changed, what is only told; once applied there is nothing to do."""

from hypothesis import given
from hypothesis import strategies as st

from topology.models import Topic
from topology.topic_plan import Deed, Step, TopicNow, changes_of, plan_topics

DEFAULTS = {"retention.ms": "604800000", "cleanup.policy": "delete", "min.insync.replicas": "1"}
THROTTLE = "follower.replication.throttled.replicas"


def now(partitions: int = 1, replicas: int = 1, **overrides: str) -> TopicNow:
    own = {key.replace("_", "."): text for key, text in overrides.items()}
    return TopicNow(partitions, replicas, own, {**DEFAULTS, **own})


def deeds(declared: Topic, found: TopicNow | None, *, prune: bool = False) -> list[tuple[Deed, str]]:
    there = {} if found is None else {"t": found}
    return [(step.deed, step.key) for step in plan_topics({"t": declared}, there, prune=prune)]


def test_each_difference_has_its_step() -> None:
    assert deeds(Topic(), None) == [(Deed.CREATE, "")]
    assert deeds(Topic(partitions=3), now(1)) == [(Deed.GROW, "partitions")]
    assert deeds(Topic(partitions=1), now(3)) == [(Deed.IMPOSSIBLE, "partitions")]
    assert deeds(Topic(replication_factor=3), now()) == [(Deed.IMPOSSIBLE, "replication_factor")]
    configs = {"retention.ms": 1000, "cleanup.policy": "delete"}
    assert deeds(Topic(configs=configs), now()) == [(Deed.SET, "retention.ms")]
    assert deeds(Topic(configs=configs), now(retention_ms="1000")) == []
    assert deeds(Topic(), now(retention_ms="1")) == [(Deed.UNDECLARED, "retention.ms")]
    assert deeds(Topic(), now(retention_ms="1"), prune=True) == [(Deed.UNSET, "retention.ms")]


def test_a_throttle_belongs_to_the_move_even_when_pruning() -> None:
    found = TopicNow(1, 1, {THROTTLE: "*"}, {**DEFAULTS, THROTTLE: "*"})
    for prune in (False, True):
        [step] = plan_topics({"t": Topic()}, {"t": found}, prune=prune)
        assert (step.deed, step.is_change) == (Deed.OPERATIONAL, False)
        assert "belongs to a move of replicas" in str(step)
        assert changes_of([step]) == {}


def test_topics_that_are_not_declared_are_nobodys_business() -> None:
    assert plan_topics({}, {"t": now(retention_ms="1")}, prune=True) == []


SETTINGS = st.dictionaries(st.sampled_from([*DEFAULTS, THROTTLE]), st.sampled_from(["1", "2", "delete"]))


@given(SETTINGS, SETTINGS, st.booleans())
def test_what_was_applied_leaves_nothing_to_do(
    declared: dict[str, str], own: dict[str, str], prune: bool
) -> None:
    declared.pop(THROTTLE, None)  # `topology validate` refuses it
    topics = {"t": Topic(configs=dict(declared))}

    def plan(overrides: dict[str, str]) -> list[Step]:
        found = {"t": TopicNow(1, 1, overrides, {**DEFAULTS, **overrides})}
        return plan_topics(topics, found, prune=prune)

    after = dict(own)
    for key, text in changes_of(plan(own)).get("t", {}).items():
        if text is None:
            after.pop(key)
        else:
            after[key] = text
    assert not [step for step in plan(after) if step.is_change]
    assert after.get(THROTTLE) == own.get(THROTTLE)
