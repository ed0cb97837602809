"""Error codes and exceptions."""

import pickle

import pytest

from protocol.errors import DecodeError, EncodeError, ErrorCode, KafkaError, ProtocolError


def test_codes_are_kafkas_and_complete() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))
    assert ErrorCode.NONE == 0
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == 3
    assert ErrorCode.MEMBER_ID_REQUIRED == 79
    assert ErrorCode.UNKNOWN_TOPIC_ID == 100


def test_codes_agree_with_kio() -> None:
    theirs = pytest.importorskip("kio.schema.errors").ErrorCode
    for code in theirs:
        ours = ErrorCode(int(code))
        assert (ours.name.lower(), ours.retriable) == (code.name, code.retriable)


def test_retriable_codes_may_be_sent_again() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.retriable
    assert not ErrorCode.TOPIC_AUTHORIZATION_FAILED.retriable
    assert not ErrorCode.REBALANCE_IN_PROGRESS.retriable


def test_codes_newer_than_the_table_are_unknown() -> None:
    assert ErrorCode.of(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.of(30000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_every_code_has_a_description() -> None:
    descriptions = [code.description for code in ErrorCode]
    assert all(descriptions)
    assert len(set(descriptions)) == len(descriptions)


def test_a_brokers_answer_says_what_and_where() -> None:
    error = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "orders-3 at east")
    assert str(error) == "orders-3 at east: MESSAGE_TOO_LARGE (10): a batch is larger than the topic allows"
    assert str(KafkaError(ErrorCode.NONE)) == "NONE (0): no error"
    assert not error.retriable
    assert pickle.loads(pickle.dumps(error)).code is ErrorCode.MESSAGE_TOO_LARGE


def test_one_family() -> None:
    assert all(issubclass(e, ProtocolError) for e in (DecodeError, EncodeError, KafkaError))


def test_what_to_do_is_a_part_of_the_text_of_every_error() -> None:
    for error in (KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "orders"), DecodeError("what it is")):
        before = str(error)
        assert error.what == before
        error.to_do = "add brokers"
        assert (error.what, str(error)) == (before, f"{before}; add brokers")
