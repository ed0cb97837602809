"""What encoding promises: records uncopied, defaults left out, tags in order, no value silently lost."""

import pytest

from protocol.codec import compiled_source, decode, dumps, encode
from protocol.errors import EncodeError
from protocol.messages.api_versions_response import ApiVersionsResponse, FinalizedFeatureKey
from protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from protocol.messages.describe_topic_partitions_request import Cursor, DescribeTopicPartitionsRequest
from protocol.messages.fetch_request import FetchRequest
from protocol.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from protocol.messages.find_coordinator_request import FindCoordinatorRequest
from protocol.messages.heartbeat_request import HeartbeatRequest
from protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest


def fetched(*partitions: PartitionData) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=list(partitions))])


class TestRecords:
    def test_buffers_go_out_as_they_are(self) -> None:
        first, second = bytes(1000), memoryview(bytearray(b"x" * 500))
        segments = encode(fetched(PartitionData(records=first), PartitionData(records=second)), 12)
        assert [len(s) for s in segments] == [len(segments[0]), 1000, len(segments[2]), 500, len(segments[4])]
        assert segments[1] is first
        assert segments[3] is second

    def test_several_segments_follow_each_other(self) -> None:
        parts = [b"one", memoryview(b"two"), b"", bytearray(b"three")]
        for version in (11, 12):
            message = fetched(PartitionData(records=parts))
            (partition,) = decode(FetchResponse, version, dumps(message, version)).responses[0].partitions
            assert partition.records == b"onetwothree"
            assert any(segment is parts[0] for segment in encode(message, version))

    def test_views_of_other_items_count_bytes(self) -> None:
        numbers = memoryview(bytes(16)).cast("q")
        (partition,) = (
            decode(FetchResponse, 12, dumps(fetched(PartitionData(records=numbers)), 12))
            .responses[0]
            .partitions
        )
        assert partition.records == bytes(16)

    def test_empty_and_null_are_kept_apart_and_make_no_segment(self) -> None:
        message = fetched(PartitionData(records=b""), PartitionData(records=None), PartitionData(records=[]))
        for version in (11, 12):
            assert len(encode(message, version)) == 1
            partitions = decode(FetchResponse, version, dumps(message, version)).responses[0].partitions
            assert [p.records for p in partitions] == [b"", None, b""]

    def test_decoded_records_are_slices_of_the_frame(self) -> None:
        data = PartitionProduceData(index=0, records=b"batch")
        frame = bytearray(dumps(ProduceRequest(topic_data=[TopicProduceData(partition_data=[data])]), 9))
        records = decode(ProduceRequest, 9, frame).topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert not records.readonly
        records[0:1] = b"B"
        assert b"Batch" in frame


class TestTags:
    def test_only_values_off_their_default_are_sent(self) -> None:
        plain = dumps(fetched(PartitionData()), 12)
        same = PartitionData(current_leader=LeaderIdAndEpoch(), snapshot_id=SnapshotId())
        assert dumps(fetched(same), 12) == plain
        assert decode(FetchResponse, 12, plain).responses[0].partitions[0].current_leader is None

    def test_ascending_order(self) -> None:
        response = ApiVersionsResponse(
            zk_migration_ready=True,
            finalized_features=[FinalizedFeatureKey(name="f", max_version_level=2)],
            finalized_features_epoch=5,
        )
        wire = dumps(response, 3)
        tags = wire[2 + 1 + 4 :]
        assert tags[0] == 3
        assert tags[1:3] == b"\x01\x08"
        assert tags[11:13] == b"\x02\x08"
        assert tags[-3:] == b"\x03\x01\x01"

    def test_arrays_of_structs_in_tags(self) -> None:
        message = FetchResponse(node_endpoints=[NodeEndpoint(node_id=1, host="h" * 200, port=9092)])
        assert decode(FetchResponse, 16, dumps(message, 16)) == message

    def test_nullable_tagged_text(self) -> None:
        message = FetchRequest(cluster_id="c")
        assert dumps(FetchRequest(), 12) != dumps(message, 12)
        assert decode(FetchRequest, 12, dumps(message, 12)) == message


class TestRefusals:
    def test_a_value_that_the_version_cannot_carry(self) -> None:
        with pytest.raises(
            EncodeError, match="FindCoordinatorRequest v0, field key_type: version 0 does not"
        ):
            dumps(FindCoordinatorRequest(key="g", key_type=1), 0)
        with pytest.raises(EncodeError, match="field coordinator_keys: version 3 does not have this field"):
            dumps(FindCoordinatorRequest(coordinator_keys=["g"]), 3)
        assert dumps(FindCoordinatorRequest(key="g"), 0) == b"\x00\x01g"

    def test_ignorable_values_are_dropped(self) -> None:
        topic = MetadataResponseTopic(name="t", topic_id=bytes(range(16)))
        message = MetadataResponse(throttle_time_ms=7, cluster_id="c", topics=[topic])
        assert decode(MetadataResponse, 0, dumps(message, 0)) == MetadataResponse(
            topics=[MetadataResponseTopic(name="t")], controller_id=-1
        )

    def test_null_where_the_version_has_none(self) -> None:
        for version in (0, 4):
            with pytest.raises(EncodeError, match="field group_id: None, which this version cannot say"):
                dumps(HeartbeatRequest(group_id=None), version)  # type: ignore[arg-type]
        with pytest.raises(EncodeError, match=r"field topics\[\].name: None"):
            dumps(MetadataResponse(topics=[MetadataResponseTopic(name=None)]), 11)
        with pytest.raises(EncodeError, match="field topics: "):
            dumps(CreateTopicsRequest(topics=None), 7)  # type: ignore[arg-type]

    def test_numbers_out_of_range(self) -> None:
        with pytest.raises(EncodeError, match="HeartbeatRequest v4, field generation_id: "):
            dumps(HeartbeatRequest(generation_id=2**31), 4)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=2**15)
        with pytest.raises(EncodeError, match=r"field topics\[\].num_partitions: "):
            dumps(CreateTopicsRequest(topics=[topic]), 7)

    def test_texts_beyond_kafkas_limit(self) -> None:
        for version in (0, 4):
            assert dumps(HeartbeatRequest(group_id="x" * 32767), version)
            with pytest.raises(EncodeError, match="field group_id: "):
                dumps(HeartbeatRequest(group_id="x" * 32768), version)
            with pytest.raises(EncodeError, match=r"field group_id: .*surrogates"):
                dumps(HeartbeatRequest(group_id="\ud800"), version)

    def test_ids_of_the_wrong_length(self) -> None:
        topic = FetchableTopicResponse(topic_id=bytes(15))
        with pytest.raises(EncodeError, match=r"field responses\[\].topic_id: an id has 16 bytes, not 15"):
            dumps(FetchResponse(responses=[topic]), 13)

    def test_text_where_bytes_belong(self) -> None:
        with pytest.raises(EncodeError, match="SaslAuthenticateRequest v2"):
            dumps(SaslAuthenticateRequest(auth_bytes="secret"), 2)  # type: ignore[arg-type]

    def test_a_version_that_does_not_exist(self) -> None:
        with pytest.raises(EncodeError, match="HeartbeatRequest has versions 0 to 4, not 5"):
            dumps(HeartbeatRequest(), 5)

    def test_a_failed_message_leaves_the_next_one_whole(self) -> None:
        with pytest.raises(EncodeError):
            encode(fetched(PartitionData(records=b"x"), PartitionData(error_code=1 << 20)), 12)
        assert decode(FetchResponse, 12, dumps(fetched(PartitionData()), 12)) == fetched(PartitionData())


def test_nullable_structs() -> None:
    for cursor in (None, Cursor(topic_name="t", partition_index=3)):
        message = DescribeTopicPartitionsRequest(cursor=cursor)
        assert decode(DescribeTopicPartitionsRequest, 0, dumps(message, 0)) == message


def test_compiled_source_can_be_read() -> None:
    assert "def decode(buf, pos, end):" in compiled_source(HeartbeatRequest, 4, "decode")
    assert "def encode(o0, out, segments):" in compiled_source(HeartbeatRequest, 4, "encode")
