"""The short way of Produce beside the compiled codec: the same requests read, the same answers written."""

from hypothesis import example, given
from hypothesis import strategies as st

from protocol.codec import decode_from, dumps
from protocol.errors import DecodeError
from protocol.frames import encode_response
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.plain_produce import MOST_PARTITIONS, PLAIN_VERSIONS, PlainAcks, PlainProduce, read_plain

VERSIONS = st.sampled_from(list(PLAIN_VERSIONS))
NAMES = st.text(st.sampled_from("ab.é"), min_size=1, max_size=5) | st.just("n" * 130)
INDEXES = st.integers(0, 2**31 - 1)
# Around the sizes at which a length takes another byte, and around the smallest batch.
SIZES = st.sampled_from([0, 40, 61, 62, 100, 125, 126, 127, 128, 16_381, 16_382, 16_383, 40_000, 2_097_151])


def records(size: int, attributes: int = 0) -> bytes:
    data = bytearray(n & 0x7F for n in range(251)) * (size // 251 + 1)
    data[22] = attributes
    return bytes(data[:size])


@st.composite
def requests(draw: st.DrawFn) -> ProduceRequest:
    parts = st.lists(
        st.builds(
            PartitionProduceData,
            index=INDEXES,
            records=st.builds(records, SIZES, st.sampled_from([0, 0, 0, 0x10])) | st.none(),
        ),
        max_size=4,
    )
    return ProduceRequest(
        transactional_id=draw(st.sampled_from([None, None, None, "t"])),
        acks=draw(st.sampled_from([-1, 0, 1])),
        timeout_ms=draw(INDEXES),
        topic_data=draw(st.lists(st.builds(TopicProduceData, name=NAMES, partition_data=parts), max_size=3)),
    )


def is_plain(request: ProduceRequest) -> bool:
    names = [topic.name for topic in request.topic_data]
    batches = [part.records for topic in request.topic_data for part in topic.partition_data]
    return (
        request.transactional_id is None
        and len(set(names)) == len(names)
        and all(len(name.encode()) < 127 for name in names)
        and all(data is not None and 61 <= len(data) < 2**21 - 1 for data in batches)
        and not any(data[22] & 0x10 for data in batches if isinstance(data, bytes))
    )


def last_of_each(request: ProduceRequest) -> ProduceRequest:
    for topic in request.topic_data:
        topic.partition_data = list({part.index: part for part in topic.partition_data}.values())
    return request


@given(requests(), VERSIONS, st.binary(max_size=3))
def test_plain_requests_are_read_as_the_codec_reads_them(
    request: ProduceRequest, version: int, left_over: bytes
) -> None:
    frame = memoryview(b"head" + dumps(request, version) + left_over)
    plain = read_plain(frame, 4)
    assert (plain is not None) == is_plain(request)
    if plain is not None:
        assert plain.to_request() == last_of_each(request)


@given(requests(), VERSIONS, st.data())
@example(ProduceRequest(acks=1), 9, None)
def test_whatever_the_bytes_are_it_never_reads_what_the_codec_refuses(
    request: ProduceRequest, version: int, data: st.DataObject | None
) -> None:
    frame = bytearray(dumps(request, version))
    if data is not None:
        for _ in range(data.draw(st.integers(1, 3))):
            frame[data.draw(st.integers(0, min(len(frame), 150) - 1))] = data.draw(st.integers(0, 255))
        del frame[data.draw(st.integers(0, len(frame))) :]
    view = memoryview(frame)
    plain = read_plain(view, 0)
    if plain is None:
        return
    try:
        codec, _ = decode_from(ProduceRequest, version, view)
    except DecodeError as error:
        raise AssertionError(f"{frame.hex()}: {error}") from error
    assert plain.to_request() == last_of_each(codec)


def test_a_request_for_very_many_partitions_is_not_plain() -> None:
    def frame(count: int) -> memoryview:
        each = 100
        topics = [
            TopicProduceData(
                name=f"t{first}",
                partition_data=[
                    PartitionProduceData(index=i, records=records(70))
                    for i in range(min(each, count - first))
                ],
            )
            for first in range(0, count, each)
        ]
        return memoryview(dumps(ProduceRequest(acks=1, topic_data=topics), 11))

    few = read_plain(frame(MOST_PARTITIONS - 5), 0)
    assert few is not None
    assert sum(map(len, few.topics.values())) == MOST_PARTITIONS - 5
    assert read_plain(frame(MOST_PARTITIONS + 1), 0) is None


OFFSETS = st.integers(0, 2**63 - 1)


@given(
    st.dictionaries(NAMES, st.lists(st.tuples(INDEXES, OFFSETS, OFFSETS), max_size=3), max_size=3), VERSIONS
)
def test_answers_are_written_as_the_codec_writes_them(
    topics: dict[str, list[tuple[int, int, int]]], version: int
) -> None:
    message = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=name,
                partition_responses=[
                    PartitionProduceResponse(index=index, base_offset=base, log_start_offset=start)
                    for index, base, start in acks
                ],
            )
            for name, acks in topics.items()
        ]
    )
    assert dumps(PlainAcks(topics), version) == dumps(message, version)
    assert b"".join(PlainAcks(topics).framed(77)) == b"".join(encode_response(message, version, 77))


def test_batches_are_slices_of_the_frame() -> None:
    data = [PartitionProduceData(index=3, records=records(200))]
    frame = memoryview(
        bytearray(dumps(ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)]), 9))
    )
    plain = read_plain(frame, 0)
    assert isinstance(plain, PlainProduce)
    assert plain.topics["t"][3].obj is frame.obj, "nothing was copied"
