"""The short way to a Produce request writes what the codec writes, and the one from an answer reads what it
reads."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.codec.codec import dumps
from protocol.frames import encode_response
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from transfer.kafka.produce_body import VERSIONS, landed, produce_body

_names = st.text(min_size=1, max_size=150)
_indexes = st.integers(0, 2**31 - 1)
_batches = st.dictionaries(
    _names,
    st.dictionaries(
        _indexes, st.tuples(st.just(b"h" * 61), st.integers(0, 40_000).map(bytes)), min_size=1, max_size=4
    ),
    max_size=4,
)
_offsets = st.integers(-1, 2**63 - 1)


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")[:16]


@pytest.mark.parametrize("version", [8, *VERSIONS])
@given(
    batches=_batches,
    timeout_ms=st.integers(0, 2**31 - 1),
    transactional_id=st.none() | st.text(max_size=20),
)
def test_it_is_what_the_codec_writes(version, batches, timeout_ms, transactional_id):
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=topic_id(name),
                partition_data=[
                    PartitionProduceData(index=index, records=list(segments))
                    for index, segments in partitions.items()
                ],
            )
            for name, partitions in batches.items()
        ],
    )
    sent = {
        name: {
            index: (None, SimpleNamespace(segments=list(segments))) for index, segments in partitions.items()
        }
        for name, partitions in batches.items()
    }
    body = produce_body(version, timeout_ms, sent, topic_id, transactional_id)
    assert b"".join(body) == dumps(request, version)


def test_answers_of_older_versions_are_read_the_general_way():
    assert landed(8, memoryview(bytes(100))) is None


def _frame(answer: ProduceResponse, version: int) -> memoryview:
    return memoryview(b"".join(encode_response(answer, version, 77))[4:])


def _answer(rows: dict[str, list[tuple[int, int, int, int]]]) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=name,
                topic_id=topic_id(name),
                partition_responses=[
                    PartitionProduceResponse(
                        index=index, base_offset=base, log_append_time_ms=at, log_start_offset=start
                    )
                    for index, base, at, start in partitions
                ],
            )
            for name, partitions in rows.items()
        ],
        throttle_time_ms=5,
    )


@pytest.mark.parametrize("version", VERSIONS)
@given(
    rows=st.dictionaries(
        _names, st.lists(st.tuples(_indexes, _offsets, _offsets, _offsets), max_size=200), max_size=4
    )
)
def test_an_answer_says_where_each_batch_is(version, rows):
    key = topic_id if version >= 13 else str
    expected = [
        (key(name), index, base) for name, partitions in rows.items() for index, base, _, _ in partitions
    ]
    assert landed(version, _frame(_answer(rows), version)) == expected


@pytest.mark.parametrize(
    "more",
    [
        {"error_code": 7},
        {"record_errors": [BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message=None)]},
        {"error_message": ""},
        {"current_leader": LeaderIdAndEpoch(leader_id=3, leader_epoch=4)},
    ],
    ids=lambda more: next(iter(more)),
)
def test_an_answer_with_more_in_it_is_read_the_general_way(more):
    answer = _answer({"a": [(0, 5, -1, 0), (1, 6, -1, 0)]})
    answer.responses[0].partition_responses[1] = PartitionProduceResponse(index=1, base_offset=6, **more)
    assert landed(12, _frame(answer, 12)) is None
    answer = _answer({"a": [(0, 5, -1, 0)]})
    answer.node_endpoints = [NodeEndpoint(node_id=1, host="h", port=1, rack=None)]
    assert landed(12, _frame(answer, 12)) is None


@given(cut=st.integers(0, 200))
def test_a_damaged_answer_is_read_the_general_way(cut):
    frame = _frame(_answer({"a": [(0, 5, -1, 0), (1, 6, -1, 0)], "b": [(0, 0, -1, 0)]}), 13)
    if cut < len(frame):
        assert landed(13, frame[:cut]) is None
    assert landed(13, memoryview(b"\0\0\0\1\0" + b"\xff" * cut)) is None
