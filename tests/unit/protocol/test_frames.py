"""Frames: headers of every kind, sizes, and bytes that other people's programs really sent."""

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from protocol.api import APIS, ApiKey
from protocol.codec import decode, dumps
from protocol.errors import DecodeError, EncodeError, ErrorCode
from protocol.frames import (
    RequestHead,
    correlation_id_of,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from protocol.messages.api_versions_request import ApiVersionsRequest
from protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.heartbeat_request import HeartbeatRequest
from protocol.messages.metadata_request import MetadataRequest
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.request_header import RequestHeader
from tests.support.messages import filled

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> list[tuple[str, int, bytes]]:
    lines = (line.split() for line in (GOLDEN / name).read_text().splitlines() if not line.startswith("#"))
    return [(who, int(version), bytes.fromhex(text)) for who, version, text in lines]


def _short(value: Any) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)


class TestGoldenFrames:
    @pytest.mark.parametrize(("client", "version", "frame"), golden("requests.txt"), ids=_short)
    def test_requests_of_real_clients(self, client: str, version: int, frame: bytes) -> None:
        head, pos = decode_request_header(frame)
        assert (head.api_key, head.api_version, head.client_id) == (ApiKey.API_VERSIONS, version, "golden")
        request = decode(ApiVersionsRequest, version, frame, pos)
        if version >= 3:
            name, _, number = client.rpartition("-")
            assert number in request.client_software_version
            software = request.client_software_name + request.client_software_version
            assert name.split("-")[0].removeprefix("lib") in software
        assert _frame(encode_request(request, version, head.correlation_id, "golden")) == frame

    @pytest.mark.parametrize(("api", "version", "frame"), golden("responses.txt"), ids=_short)
    def test_responses_of_apache_kafka(self, api: str, version: int, frame: bytes) -> None:
        request = next(known.request for known in APIS.values() if known.name == api)
        correlation_id, answer = decode_response(frame, request, version)
        assert correlation_id == correlation_id_of(frame) == 1
        assert _frame(encode_response(answer, version, 1)) == frame

    def test_what_kafka_advertises(self) -> None:
        for version in (0, 3):
            frame = next(
                frame for api, v, frame in golden("responses.txt") if (api, v) == ("ApiVersions", version)
            )
            _, answer = decode_response(frame, ApiVersionsRequest, version)
            assert answer.error_code == ErrorCode.NONE
            ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
            assert ranges[ApiKey.PRODUCE] == (0, 13)
            assert ranges[ApiKey.FETCH] == (4, 18)

    def test_api_versions_by_hand(self) -> None:
        """KIP-511: the answer's header has no tag section, in any version; the request's has from v3 on."""
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        assert _joined(encode_request(ApiVersionsRequest(), 0, 7, "me")).hex() == (
            "0000000c 0012 0000 00000007 0002 6d65".replace(" ", "")
        )
        assert _joined(encode_request(request, 3, 7, None)).hex() == (
            "00000010 0012 0003 00000007 ffff 00 0278 0231 00".replace(" ", "")
        )
        answer = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])
        assert _joined(encode_response(answer, 0, 7)).hex() == (
            "00000010 00000007 0000 00000001 0012 0000 0004".replace(" ", "")
        )
        assert _joined(encode_response(answer, 3, 7)).hex() == (
            "00000013 00000007 0000 02 0012 0000 0004 00 00000000 00".replace(" ", "")
        )


class TestHeaders:
    def test_client_id_stays_a_plain_nullable_string(self) -> None:
        for version in (0, 4):
            for client_id in ("me", "", None):
                frame = _frame(encode_request(HeartbeatRequest(group_id="g"), version, 9, client_id))
                head, pos = decode_request_header(frame)
                assert head == RequestHead(ApiKey.HEARTBEAT, version, 9, client_id)
                assert decode(HeartbeatRequest, version, frame, pos).group_id == "g"

    def test_same_bytes_as_the_generated_header(self) -> None:
        """The fast path and Kafka's definition agree."""
        for version, header_version in ((0, 1), (4, 2)):
            header = RequestHeader(
                request_api_key=12, request_api_version=version, correlation_id=5, client_id="id"
            )
            frame = _frame(encode_request(HeartbeatRequest(), version, 5, "id"))
            assert frame.startswith(dumps(header, header_version))

    @pytest.mark.parametrize("key", sorted(APIS))
    def test_every_request_and_response_travels(self, key: int) -> None:
        api = APIS[key]
        for version in range(api.min, api.max + 1):
            if (key, version) == (ApiKey.CONTROLLED_SHUTDOWN, 0):
                continue
            request: Any = filled(api.request, version)
            frame = _frame(encode_request(request, version, -5, "client"))
            head, pos = decode_request_header(memoryview(frame))
            assert head == (key, version, -5, "client")
            assert decode(api.request, version, frame, pos) == request
            response: Any = filled(api.response, version)
            frame = _frame(encode_response(response, version, 2**31 - 1))
            assert decode_response(bytearray(frame), api.request, version) == (2**31 - 1, response)

    def test_tags_in_headers_are_skipped(self) -> None:
        frame = _frame(encode_request(HeartbeatRequest(), 4, 1, "c"))
        tagged = frame[:11] + b"\x01\x07\x02ab" + frame[12:]
        head, pos = decode_request_header(tagged)
        assert head.client_id == "c"
        assert decode(HeartbeatRequest, 4, tagged, pos) == HeartbeatRequest()
        answer = _frame(encode_response(filled(APIS[12].response, 4), 4, 1))
        tagged = answer[:4] + b"\x01\x07\x02ab" + answer[5:]
        assert decode_response(tagged, HeartbeatRequest, 4) == decode_response(answer, HeartbeatRequest, 4)

    def test_versions_nobody_has_can_be_answered(self) -> None:
        """ApiVersions from the future: the header reads, so that error 35 can be answered (KIP-511)."""
        head, _ = decode_request_header(bytes.fromhex("0012 0063 00000001 0002 6d65 00 ffff"))
        assert head == RequestHead(ApiKey.API_VERSIONS, 99, 1, "me")

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("", "the frame ends inside it, after 0 bytes"),
            ("0012 0000 0000", "the frame ends inside it"),
            ("0012 0000 00000001 0005 6d65", "client id of 5 bytes, 2 are left"),
            ("0012 0000 00000001 fffe", "client id of -2 bytes"),
            ("0012 0000 00000001 0002 ff65", "not UTF-8"),
            ("0012 0003 00000001 0002 6d65", "the frame ends inside it"),
            ("0012 0003 00000001 0002 6d65 01 00 05 61", "tagged field of 5 bytes, 1 are left"),
            ("7fff 0000 00000001 ffff", "unknown API key 32767"),
            ("0007 0000 00000001 00000001", "ControlledShutdown v0"),
        ],
    )
    def test_broken_headers(self, text: str, reason: str) -> None:
        with pytest.raises(DecodeError, match=f"request header: .*{reason}"):
            decode_request_header(bytes.fromhex(text))

    def test_an_answer_to_an_unknown_api_versions_request_is_version_0(self) -> None:
        """KIP-511: error 35 comes in a body of version 0, whatever was asked."""
        answer = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18, max_version=3)]
        )
        frame = _frame(encode_response(answer, 0, 1))
        for version in range(5):
            assert decode_response(frame, ApiVersionsRequest, version) == (1, answer)

    def test_broken_responses(self) -> None:
        with pytest.raises(DecodeError, match="response of 3 bytes"):
            decode_response(b"abc", HeartbeatRequest, 4)
        with pytest.raises(DecodeError, match="response header of HeartbeatRequest v4"):
            decode_response(b"\0\0\0\1\5", HeartbeatRequest, 4)
        with pytest.raises(DecodeError, match="left over"):
            decode_response(bytes(4 + 6 + 1), HeartbeatRequest, 1)

    def test_headers_that_cannot_be_written(self) -> None:
        with pytest.raises(EncodeError, match="Heartbeat request header"):
            encode_request(HeartbeatRequest(), 4, 2**31)
        with pytest.raises(EncodeError, match="Heartbeat request header"):
            encode_request(HeartbeatRequest(), 4, 1, "x" * 40000)
        with pytest.raises(EncodeError, match="Heartbeat response header"):
            encode_response(APIS[12].response(), 4, 2**31)


class TestSegments:
    def test_record_batches_are_not_copied(self) -> None:
        batch = bytes(10_000)
        partition = PartitionData(records=batch)
        answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
        segments = encode_response(answer, 12, 1)
        assert len(segments) == 3
        assert segments[1] is batch
        data = PartitionProduceData(records=batch)
        request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[data])])
        assert encode_request(request, 9, 1, "c")[1] is batch

    def test_the_size_covers_all_segments(self) -> None:
        frame = _joined(encode_request(filled(ProduceRequest, 9), 9, 1, "c"))
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4

    def test_messages_without_a_body_are_one_segment(self) -> None:
        assert len(encode_request(ApiVersionsRequest(), 0, 1, None)) == 1


class TestFuzz:
    def test_random_frames_raise_only_decode_errors(self) -> None:
        for _ in range(20_000):
            frame = random.randbytes(random.randint(0, 60))
            with suppress(DecodeError):
                head, pos = decode_request_header(frame)
                decode(APIS[head.api_key].request, head.api_version, frame, pos)

    def test_damaged_frames_raise_only_decode_errors(self) -> None:
        for _ in range(300):
            api = APIS[random.choice(sorted(APIS))]
            version = random.randint(max(api.min, 1 if api.key == ApiKey.CONTROLLED_SHUTDOWN else 0), api.max)
            frame = _frame(encode_request(filled(api.request, version), version, 1, "fuzz"))
            answer = _frame(encode_response(filled(api.response, version), version, 1))
            for _ in range(30):
                with suppress(DecodeError):
                    damaged = _damage(frame)
                    head, pos = decode_request_header(damaged)
                    decode(APIS[head.api_key].request, head.api_version, damaged, pos)
                with suppress(DecodeError):
                    decode_response(_damage(answer), api.request, version)

    def test_random_bodies_raise_only_decode_errors(self) -> None:
        """Small numbers look like lengths, counts and tags much more often than noise does."""
        for _ in range(10_000):
            api = APIS[random.choice(sorted(APIS))]
            version = random.randint(api.min, api.max)
            body = bytes(random.choices((0, 1, 2, 3, 255, 127, 128), k=random.randint(0, 80)))
            for cls in (api.request, api.response):
                with suppress(DecodeError):
                    decode(cls, version, body)


def _damage(frame: bytes) -> bytes:
    damaged = bytearray(frame)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(damaged) + 1)
        kind = random.randrange(3)
        if kind == 0:
            damaged[at : at + 1] = random.randbytes(1)
        elif kind == 1:
            del damaged[at : at + random.randint(1, 4)]
        else:
            damaged[at:at] = random.choice((b"\xff", b"\x00", b"\xff\xff\xff\xff\x07", random.randbytes(4)))
    return bytes(damaged)


def _joined(segments: list[Any]) -> bytes:
    return b"".join(segments)


def _frame(segments: list[Any]) -> bytes:
    return _joined(segments)[4:]


def test_metadata_null_and_empty_topics_are_kept_apart() -> None:
    for version in (1, 9):
        for topics in (None, []):
            frame = _frame(encode_request(MetadataRequest(topics=topics), version, 1))
            _, pos = decode_request_header(frame)
            assert decode(MetadataRequest, version, frame, pos).topics == topics
