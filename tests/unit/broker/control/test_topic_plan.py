"""Checks of wanted topics: Kafka's codes, and texts that name the topic and the number or setting."""

import pytest

from broker.config import load
from broker.control.assignment import Candidate
from broker.control.topic_plan import (
    Wanted,
    check_configs,
    check_name,
    plan_assignment,
    plan_growth,
    refuse_internal,
)
from protocol.errors import ErrorCode, KafkaError

CONFIG = load({"num.partitions": "4", "default.replication.factor": "2"})
TWO = [Candidate(1), Candidate(2)]


def code_of(call, *arguments):
    with pytest.raises(KafkaError) as caught:
        call(*arguments)
    assert caught.value.message
    return caught.value.code


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "x" * 250, "a:b"])
def test_illegal_names(name):
    assert code_of(check_name, name, []) == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "-"])
def test_legal_names(name):
    check_name(name, ["other"])


def test_names_that_are_taken_or_collide():
    assert code_of(check_name, "a.b", ["a.b"]) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert code_of(check_name, "a.b", ["x", "a_b"]) == ErrorCode.INVALID_TOPIC_EXCEPTION
    check_name("a.b", ["a-b"])


def test_defaults_fill_what_was_not_asked():
    placed = plan_assignment(Wanted("t"), CONFIG, TWO)
    assert len(placed) == 4
    assert all(len(replicas) == 2 for replicas in placed.values())


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (Wanted("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (Wanted("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (Wanted("t", 2**31 - 1, 1), ErrorCode.POLICY_VIOLATION),
        (Wanted("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (Wanted("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (Wanted("t", 1, -1, assignment={0: (1,)}), ErrorCode.INVALID_REQUEST),
        (Wanted("t", assignment={0: (1,), 2: (2,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Wanted("t", assignment={1: (1,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Wanted("t", assignment={0: (1, 1)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Wanted("t", assignment={0: ()}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Wanted("t", assignment={0: (1,), 1: (1, 2)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Wanted("t", assignment={0: (7,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_numbers_and_assignments_that_cannot_be(wanted, code):
    assert code_of(plan_assignment, wanted, CONFIG, TWO) == code


def test_an_assignment_by_hand_is_taken_as_it_is():
    assert plan_assignment(Wanted("t", assignment={0: (2, 1)}), CONFIG, TWO) == {0: (2, 1)}


def test_settings_are_checked_and_named():
    with pytest.raises(KafkaError, match=r"retention\.msx.*did you mean retention\.ms") as caught:
        check_configs("t", CONFIG, {"retention.msx": "1"})
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_growth():
    current = {0: (1,), 1: (2,)}
    added = plan_growth("t", current, 4, None, TWO)
    assert sorted(added) == [2, 3]
    assert all(len(replicas) == 1 for replicas in added.values())
    assert plan_growth("t", current, 3, [[2]], TWO) == {2: (2,)}
    for count in (1, 2):
        assert code_of(plan_growth, "t", current, count, None, TWO) == ErrorCode.INVALID_PARTITIONS
    assert code_of(plan_growth, "t", current, 2**31 - 1, None, TWO) == ErrorCode.POLICY_VIOLATION
    assert code_of(plan_growth, "t", current, 3, [[1], [2]], TWO) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code_of(plan_growth, "t", current, 3, [[1, 2]], TWO) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_the_brokers_own_topics_are_protected():
    assert code_of(refuse_internal, "__consumer_offsets") == ErrorCode.INVALID_TOPIC_EXCEPTION
    refuse_internal("__mine")
