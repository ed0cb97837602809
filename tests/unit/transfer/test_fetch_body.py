"""The short way to a Fetch request writes what the codec writes, and the one from an answer reads what it
reads."""

from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.codec import decode
from protocol.codec.codec import dumps
from protocol.frames import encode_response
from protocol.messages.fetch_request import FetchRequest
from protocol.messages.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from protocol.types import TopicPartition
from transfer.kafka.fetch_body import VERSIONS, fetch_body, fetch_request, read
from transfer.kafka.reading import Reading

_names = st.text(min_size=1, max_size=150)
_epochs = st.integers(-1, 2**31 - 1)
_offsets = st.integers(0, 2**63 - 1)
_bytes = st.integers(0, 2**31 - 1)


def topic_id(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=16).digest()


@st.composite
def _readings(draw: st.DrawFn) -> list[Reading]:
    tps = draw(st.lists(st.tuples(_names, st.integers(0, 2**31 - 1)), max_size=8, unique=True))
    made = []
    for name, partition in tps:
        reading = Reading(TopicPartition(name, partition), draw(_offsets), topic_id(name))
        reading.leader_epoch, reading.last_epoch = draw(_epochs), draw(_epochs)
        made.append(reading)
    return made


@pytest.mark.parametrize("version", VERSIONS)
@given(readings=_readings(), wait_ms=_bytes, max_bytes=_bytes, partition_max_bytes=_bytes)
def test_it_is_what_the_codec_writes(version, readings, wait_ms, max_bytes, partition_max_bytes):
    sizes = {"max_wait_ms": wait_ms, "max_bytes": max_bytes, "partition_max_bytes": partition_max_bytes}
    body = fetch_body(version, readings, **sizes)
    assert b"".join(body) == dumps(fetch_request(version, readings, **sizes), version)


@pytest.mark.parametrize("version", [12, 13, 18])
def test_a_topic_that_took_the_name_of_another_is_not_read_for_it(version):
    """Both are open for a while: the old one's partition may be paused, and has not heard of it."""
    old = Reading(TopicPartition("a", 0), 5, topic_id("old"))
    new = Reading(TopicPartition("a", 1), 0, topic_id("new"))
    (body,) = fetch_body(version, [old, new], max_wait_ms=1, max_bytes=1, partition_max_bytes=1) or ()
    topics = decode(FetchRequest, version, body).topics
    asked = [(topic.topic_id, [part.partition for part in topic.partitions]) for topic in topics]
    if version >= 13:
        assert asked == [(topic_id("old"), [0]), (topic_id("new"), [1])]
    else:
        assert asked == [(bytes(16), [0, 1])]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_can_ask_behind_a_batch_whose_epoch_is_known(version):
    reading = Reading(TopicPartition("a", 0), 5, topic_id("a"), leader_epoch=3, last_epoch=2)
    request = fetch_request(version, [reading], max_wait_ms=1, max_bytes=1, partition_max_bytes=1)
    ((part,),) = [topic.partitions for topic in decode(FetchRequest, version, dumps(request, version)).topics]
    assert part.fetch_offset == 5
    assert part.last_fetched_epoch == (2 if version >= 12 else -1)


def test_older_versions_go_the_general_way():
    reading = Reading(TopicPartition("a", 1), 7)
    sizes = {"max_wait_ms": 1, "max_bytes": 2, "partition_max_bytes": 3}
    assert b"".join(fetch_body(11, [reading], **sizes)) == dumps(fetch_request(11, [reading], **sizes), 11)
    assert read(11, memoryview(bytes(100))) is None


def _frame(answer: FetchResponse, version: int) -> memoryview:
    return memoryview(b"".join(encode_response(answer, version, 77))[4:])


_rows = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), _offsets, _offsets, _offsets, st.binary(max_size=300)), max_size=200
)


@pytest.mark.parametrize("version", VERSIONS)
@given(topics=st.dictionaries(_names, _rows, max_size=4), null=st.booleans())
def test_an_answer_says_what_was_read_of_each_partition(version, topics, null):
    answer = FetchResponse(
        throttle_time_ms=3,
        session_id=0,
        responses=[
            FetchableTopicResponse(
                topic=name,
                topic_id=topic_id(name),
                partitions=[
                    PartitionData(
                        partition_index=index,
                        high_watermark=high,
                        last_stable_offset=stable,
                        log_start_offset=start,
                        aborted_transactions=None if null else [],
                        preferred_read_replica=-1,
                        records=records or (None if null else b""),
                    )
                    for index, high, stable, start, records in rows
                ],
            )
            for name, rows in topics.items()
        ],
    )
    key = topic_id if version >= 13 else str
    expected = [(key(name), *row) for name, rows in topics.items() for row in rows]
    assert [tuple(row) for row in read(version, _frame(answer, version)) or ()] == expected


def _one(**more: object) -> FetchResponse:
    rows = [
        PartitionData(partition_index=0, high_watermark=4, records=b"abc"),
        PartitionData(partition_index=1, high_watermark=4, records=b"abc", **more),
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="a", partitions=rows)])


@pytest.mark.parametrize(
    "more",
    [
        {"error_code": 6},
        {"aborted_transactions": [AbortedTransaction(producer_id=3, first_offset=1)]},
        {"diverging_epoch": EpochEndOffset(epoch=1, end_offset=5)},
        {"current_leader": LeaderIdAndEpoch(leader_id=3, leader_epoch=4)},
        {"snapshot_id": SnapshotId(end_offset=3, epoch=4)},
        {"preferred_read_replica": 2},
    ],
    ids=lambda more: next(iter(more)),
)
def test_an_answer_with_more_in_it_is_read_the_general_way(more):
    assert read(12, _frame(_one(), 12)) is not None
    assert read(12, _frame(_one(**more), 12)) is None


def test_what_concerns_the_whole_answer_is_read_the_general_way():
    refused = _one()
    refused.error_code = 71
    assert read(12, _frame(refused, 12)) is None
    moved = _one()
    moved.node_endpoints = [NodeEndpoint(node_id=1, host="h", port=1, rack=None)]
    assert read(16, _frame(moved, 16)) is None


@given(cut=st.integers(0, 200))
def test_a_damaged_answer_is_read_the_general_way(cut):
    frame = _frame(_one(), 13)
    if cut < len(frame):
        assert read(13, frame[:cut]) is None
    assert read(13, memoryview(b"\0\0\0\1\0" + b"\xff" * cut)) is None
