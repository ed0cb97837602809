"""The generated classes: constructors, equality, reprs, and the table of APIs."""

import subprocess
import sys

import pytest

from protocol.api import ADVERTISED_MIN, APIS, ApiKey
from protocol.codec.layout import is_flexible
from protocol.codec.schema import Request, Response, version_range
from protocol.messages.fetch_request import FetchRequest
from protocol.messages.fetch_response import FetchResponse, PartitionData
from protocol.messages.metadata_response import MetadataResponseTopic
from protocol.messages.offset_commit_key import OffsetCommitKey
from protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from protocol.types import ZERO_UUID, new_topic_id, uuid_from_text, uuid_to_text
from tests.support.messages import all_messages, private_messages


def test_defaults_are_kafkas() -> None:
    request = FetchRequest()
    assert request.replica_id == -1
    assert request.max_bytes == 0x7FFFFFFF
    assert request.rack_id == ""
    assert request.cluster_id is None
    assert request.topics == []
    assert request.replica_state is None
    assert PartitionData().last_stable_offset == -1
    assert MetadataResponseTopic().topic_id == ZERO_UUID


def test_mutable_defaults_are_not_shared() -> None:
    FetchResponse().responses.append(None)  # type: ignore[arg-type]
    assert FetchResponse().responses == []


def test_equality_is_by_type_and_value() -> None:
    assert PartitionData(records=b"x") == PartitionData(records=memoryview(b"x"))
    assert PartitionData() != PartitionData(error_code=3)
    assert FetchRequest() != FetchResponse()
    with pytest.raises(TypeError, match="unhashable"):
        hash(FetchRequest())


def test_unknown_attributes_are_refused() -> None:
    with pytest.raises(AttributeError):
        FetchRequest().topic = "t"  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        FetchRequest(topic="t")  # type: ignore[call-arg]


def test_reprs_show_no_contents_of_bytes() -> None:
    assert "auth_bytes=<6 bytes>" in repr(SaslAuthenticateRequest(auth_bytes=b"secret"))
    assert "records=<3 bytes>" in repr(PartitionData(records=memoryview(b"abc")))
    assert "records=<5 bytes in 2 segments>" in repr(PartitionData(records=[b"abc", b"de"]))
    assert f"topic_id={uuid_to_text(bytes(range(16)))}" in repr(
        MetadataResponseTopic(topic_id=bytes(range(16)))
    )
    assert repr(OffsetCommitKey(group="g", topic="t", partition=1)) == (
        "OffsetCommitKey(group='g', topic='t', partition=1)"
    )


def test_every_api_has_its_classes() -> None:
    for key, api in APIS.items():
        assert api.request.API_KEY == api.response.API_KEY == api.key == key
        assert issubclass(api.request, Request)
        assert issubclass(api.response, Response)
        assert api.request.VALID_VERSIONS == api.response.VALID_VERSIONS == (api.min, api.max)
        for version in range(api.min, api.max + 1):
            assert api.is_flexible(version) == is_flexible(api.request, version)


def test_every_request_and_response_is_in_the_table() -> None:
    classes = {api.request for api in APIS.values()} | {api.response for api in APIS.values()}
    written = (*all_messages(), *private_messages())
    assert classes == {cls for cls in written if issubclass(cls, Request | Response)}


def test_produce_is_advertised_from_zero_for_old_librdkafka() -> None:
    assert ADVERTISED_MIN == {ApiKey.PRODUCE: 0}
    assert APIS[ApiKey.PRODUCE].min == 3
    assert APIS[ApiKey.JOIN_GROUP].min == 0


def test_record_schemas_know_their_type() -> None:
    from protocol.messages.group_metadata_key import GroupMetadataKey
    from protocol.messages.legacy_offset_commit_key import LegacyOffsetCommitKey

    types = [cls.RECORD_TYPE for cls in (LegacyOffsetCommitKey, OffsetCommitKey, GroupMetadataKey)]
    assert types == [0, 1, 2]


def test_messages_are_imported_when_first_asked_for() -> None:
    code = (
        "import sys; import protocol.frames\n"
        "loaded = [m for m in sys.modules if m.startswith('protocol.messages.')]\n"
        "assert loaded == ['protocol.messages.index'], loaded\n"
        "from protocol.api import APIS; APIS[3].request\n"
        "assert 'protocol.messages.metadata_request' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("3+", (3, 32767), (2,)),
        ("0-12", (0, 12), (13, -1)),
        ("5", (5,), (4, 6)),
        ("none", (), (0,)),
        ("", (), (0,)),
    ],
)
def test_version_ranges(text: str, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    versions = version_range(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_topic_ids_have_kafkas_text() -> None:
    assert uuid_to_text(ZERO_UUID) == "A" * 22
    assert uuid_to_text(bytes(range(16))) == "AAECAwQFBgcICQoLDA0ODw"
    for _ in range(200):
        topic_id = new_topic_id()
        assert uuid_from_text(uuid_to_text(topic_id)) == topic_id
        assert not uuid_to_text(topic_id).startswith("-")
    for text in (
        "",
        "AAECAwQFBgcICQoLDA0OD",
        "AAECAwQFBgcICQoLDA0OD!",
        "x" * 22 + "é",
    ):
        with pytest.raises(ValueError, match="not a Kafka id"):
            uuid_from_text(text)
    with pytest.raises(ValueError, match="16 bytes, not 3"):
        uuid_to_text(b"abc")
