"""Bytes that lie: cut short, too long, impossible lengths, unknown tags. One error type, no memory spent."""

import random
import tracemalloc
from contextlib import suppress

import pytest

from protocol.codec import decode, decode_from, dumps
from protocol.codec.layout import is_flexible
from protocol.codec.schema import Message
from protocol.codec.wire import MAX_ITEMS, uvarint
from protocol.errors import DecodeError
from tests.support.messages import all_messages, all_versions, filled, versions

HOSTILE = (
    b"\xff\xff\xff\xff\x07",  # varint 2^31 - 1
    b"\xff\xff\xff\xff\x7f",  # varint of 35 bits
    b"\x7f\xff\xff\xff",  # int32, the largest
    b"\xff\xff\xff\xfe",  # int32 -2
)


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_every_prefix_is_refused(cls: type[Message]) -> None:
    for version in versions(cls):
        wire = dumps(filled(cls, version), version)
        for size in range(len(wire)):
            with pytest.raises(DecodeError):
                decode(cls, version, wire[:size])


def test_bytes_left_over_are_refused() -> None:
    for cls, version in all_versions():
        wire = dumps(filled(cls, version), version)
        with pytest.raises(DecodeError, match="1 bytes left over"):
            decode(cls, version, wire + b"\0")


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_hostile_lengths_cost_no_memory(cls: type[Message]) -> None:
    """Whatever stands in a frame, decoding takes no more than objects for the bytes that are really there."""
    newest = {is_flexible(cls, version): version for version in versions(cls)}
    wires = {version: dumps(filled(cls, version, items=1), version) for version in newest.values()}
    for version in wires:
        decode(cls, version, wires[version])  # compile before memory is measured
    tracemalloc.start()
    try:
        for version, wire in wires.items():
            for pos in range(len(wire)):
                for lie in HOSTILE:
                    hostile = wire[:pos] + lie + wire[pos + len(lie) :]
                    try:
                        decode(cls, version, hostile)
                    except DecodeError:
                        continue
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_random_damage_raises_only_decode_errors(cls: type[Message]) -> None:
    for version in versions(cls):
        wire = bytearray(dumps(filled(cls, version), version))
        for _ in range(40):
            damaged = bytearray(wire)
            for _ in range(random.randint(1, 4)):
                if damaged:
                    damaged[random.randrange(len(damaged))] = random.randrange(256)
            with suppress(DecodeError):
                decode(cls, version, damaged)


def test_unknown_tagged_fields_are_skipped() -> None:
    tagged = uvarint(9000) + uvarint(5) + b"later" + uvarint(9001) + uvarint(0)
    for cls, version in all_versions():
        if is_flexible(cls, version):
            message = filled(cls, version)
            wire = dumps(message, version)
            at = _tag_count_position(cls, version, message, wire)
            known = wire[at]
            changed = wire[:at] + uvarint(known + 2) + wire[at + 1 :] + tagged
            assert decode(cls, version, changed) == message, (cls.__name__, version)


def _tag_count_position(cls: type[Message], version: int, message: Message, wire: bytes) -> int:
    """Where the tag section of the message itself starts: its tagged fields are all the bytes after it."""
    bare = type(message)(
        **{f.name: getattr(message, f.name) for f in cls.FIELDS if not (f.tag >= 0 and f.tagged != "none")}
    )
    return len(dumps(bare, version)) - 1


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        (b"\x01\x63\x05ab", "tagged field of 5 bytes, 2 are left"),
        (b"\x02\x63\x00", "ends inside"),
        (b"\x01\x63\xff\xff\xff\xff\x07", "tagged field of 2147483647 bytes, 0 are left"),
        (b"\xff\xff\xff\xff\xff\x01", "longer than 5 bytes"),
        (b"\xff\xff\xff\xff\x7f", "does not fit 32 bits"),
    ],
)
def test_broken_tag_sections_are_refused(tags: bytes, reason: str) -> None:
    from protocol.messages.heartbeat_response import HeartbeatResponse

    wire = dumps(HeartbeatResponse(), 4)
    with pytest.raises(DecodeError, match=reason):
        decode(HeartbeatResponse, 4, wire[:-1] + tags)


def test_a_known_tagged_field_must_fill_its_size() -> None:
    from protocol.messages.produce_response import LeaderIdAndEpoch, ProduceResponse
    from protocol.messages.produce_response import PartitionProduceResponse as Partition
    from protocol.messages.produce_response import TopicProduceResponse as Topic

    leader = LeaderIdAndEpoch(leader_id=3, leader_epoch=4)
    message = ProduceResponse(
        responses=[Topic(name="t", partition_responses=[Partition(current_leader=leader)])]
    )
    wire = dumps(message, 10)
    at = wire.index(b"\x01\x00\x09\x00\x00\x00\x03") + 2
    for size in (8, 10):
        with pytest.raises(DecodeError, match=r"responses\[0\].partition_responses\[0\]"):
            decode(ProduceResponse, 10, wire[:at] + bytes((size,)) + wire[at + 1 :])


def test_errors_name_message_field_and_position() -> None:
    from protocol.messages.metadata_response import MetadataResponse

    message = filled(MetadataResponse, 12)
    wire = dumps(message, 12)
    name = message.topics[1].name.encode()
    at = wire.index(name)
    with pytest.raises(
        DecodeError, match=rf"MetadataResponse v12, field topics\[1\].name at position {at} of"
    ):
        decode(MetadataResponse, 12, wire[:at] + b"\xff" + wire[at + 1 :])
    where = r"topics\[1\].partitions\[0\].offline_replicas"
    with pytest.raises(DecodeError, match=rf"{where} .* 2 items of at least 4 bytes, but only 4 bytes are"):
        decode(MetadataResponse, 12, wire[: at + len(name) + 18 + 37])


def test_null_where_null_is_not_allowed() -> None:
    from protocol.messages.heartbeat_request import HeartbeatRequest

    with pytest.raises(DecodeError, match=r"field group_id .* null, which this field cannot be"):
        decode(HeartbeatRequest, 4, b"\x00" + bytes(20))
    with pytest.raises(DecodeError, match=r"field group_id .* null, which this field cannot be"):
        decode(HeartbeatRequest, 0, b"\xff\xff" + bytes(20))
    with pytest.raises(DecodeError, match=r"field group_id .* length -2"):
        decode(HeartbeatRequest, 0, b"\xff\xfe" + bytes(20))


def test_a_frame_of_tiny_items_cannot_claim_many_times_its_size() -> None:
    """An item of two bytes becomes an object of a hundred; the number of items in a message has an end."""
    from protocol.messages.describe_groups_request import DescribeGroupsRequest
    from protocol.messages.fetch_request import FetchRequest
    from protocol.messages.metadata_request import MetadataRequest

    names = dumps(DescribeGroupsRequest(groups=[""] * MAX_ITEMS), 5)
    assert len(decode(DescribeGroupsRequest, 5, names).groups) == MAX_ITEMS
    too_many = uvarint(MAX_ITEMS + 2) + bytes(40) * MAX_ITEMS
    hostile = (
        (MetadataRequest, 12, too_many),
        (DescribeGroupsRequest, 5, too_many),
        (FetchRequest, 17, bytes(4 + 4 + 4 + 1 + 4 + 4) + too_many),
    )
    for cls, version, _ in hostile:
        decode(cls, version, dumps(cls(), version))  # compile before memory is measured
    tracemalloc.start()
    try:
        for cls, version, wire in hostile:
            with pytest.raises(DecodeError, match=f"more than {MAX_ITEMS} array items"):
                decode(cls, version, wire)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_items_are_counted_over_all_arrays_of_a_message() -> None:
    from protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
    from protocol.messages.offset_fetch_request import OffsetFetchRequestTopics as Topic

    topics = [Topic(name="t", partition_indexes=list(range(4000)))] * 997  # numbers count an eighth
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    assert len(decode(OffsetFetchRequest, 8, dumps(request, 8)).groups[0].topics or ()) == 997
    topics *= 2
    request.groups[0].topics = topics
    with pytest.raises(DecodeError, match=r"field groups\[0\].topics\[996\].partition_indexes .* more than"):
        decode(OffsetFetchRequest, 8, dumps(request, 8))


def test_strings_end_at_kafkas_limit() -> None:
    from protocol.messages.heartbeat_request import HeartbeatRequest

    long = uvarint(0x8000 + 1) + bytes(0x8000) + bytes(10)
    with pytest.raises(DecodeError, match="string of 32768 bytes, at most 32767"):
        decode(HeartbeatRequest, 4, long)


def test_a_version_that_does_not_exist_is_refused() -> None:
    from protocol.messages.heartbeat_request import HeartbeatRequest

    for version in (-1, 5):
        with pytest.raises(DecodeError, match=f"HeartbeatRequest has versions 0 to 4, not {version}"):
            decode_from(HeartbeatRequest, version, b"")
