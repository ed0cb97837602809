"""Every message in every version: what is written can be read, and comes back the same."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.codec import decode, decode_from, dumps, encode
from protocol.codec.schema import Message
from tests.support.messages import all_messages, all_versions, filled, messages, versions

FAST = settings(
    max_examples=6,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
@FAST
@given(data=st.data())
def test_any_value_comes_back(cls: type[Message], data: st.DataObject) -> None:
    for version in versions(cls):
        message = data.draw(messages(cls, version))
        wire = dumps(message, version)
        assert decode(cls, version, wire) == message
        assert dumps(decode(cls, version, wire), version) == wire


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_defaults_and_filled_messages_come_back(cls: type[Message]) -> None:
    for version in versions(cls):
        for message in (cls(), filled(cls, version), filled(cls, version, items=200)):
            wire = dumps(message, version)
            assert decode(cls, version, wire) == message


def test_all_messages_are_there() -> None:
    assert len(all_messages()) == 145
    assert len(list(all_versions())) == 598


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_read_from_any_position(kind: type) -> None:
    cls = next(c for c in all_messages() if c.__name__ == "ProduceRequest")
    message = filled(cls, 9)
    wire = dumps(message, 9)
    padded = kind(b"head" + wire)
    assert decode(cls, 9, padded, 4) == message
    assert decode_from(cls, 9, kind(b"head" + wire + b"tail"), 4) == (message, 4 + len(wire))


def test_segments_joined_are_the_message() -> None:
    for cls, version in all_versions():
        message = filled(cls, version)
        segments = encode(message, version)
        assert all(len(segment) for segment in segments)
        assert b"".join(segments) == dumps(message, version)
