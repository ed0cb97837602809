"""What the check makes of a broker's answers about rights."""

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from replicator.preflight.asking import _group_rights, _topic_rights
from replicator.preflight.facts import Rights, Side

_UNKNOWN = -0x8000_0000


class Coordinator:
    """Answers about a group with these codes, one after the other; the last one again and again."""

    def __init__(self, *codes):
        self._codes = list(codes)

    async def send_coordinator(self, group, request, **_):
        code = self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]
        bits = _UNKNOWN if code else 1 << 3
        row = DescribedGroup(error_code=code, group_id=group, authorized_operations=bits)
        return DescribeGroupsResponse(groups=[row])

    def forget_coordinator(self, *_):
        pass


async def test_a_coordinator_that_has_just_come_into_being_is_asked_again():
    """A cluster that never had a group makes `__consumer_offsets` at the first question."""
    side = Side("west")
    client = Coordinator(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE)
    assert await _group_rights(client, side, ["g"]) == {"g": Rights(1 << 3)}
    assert side.refused == {}


async def test_a_group_that_may_not_be_described_has_no_rights():
    side = Side("west")
    client = Coordinator(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert await _group_rights(client, side, ["g"]) == {"g": Rights(0)}


class Cluster:
    """Answers Metadata with one code for every topic."""

    def __init__(self, code, bits=_UNKNOWN):
        self._code = code
        self._bits = bits

    async def send_any(self, request, **_):
        return MetadataResponse(
            topics=[
                MetadataResponseTopic(
                    error_code=self._code, name=one.name, topic_authorized_operations=self._bits
                )
                for one in request.topics
            ]
        )


@pytest.mark.parametrize(
    ("code", "bits", "expected"),
    [
        (ErrorCode.NONE, 8, Rights(8)),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 8, Rights(8)),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, _UNKNOWN, Rights(0)),
    ],
)
async def test_rights_on_topics_that_are_hidden_or_not_there_yet(code, bits, expected):
    assert await _topic_rights(Cluster(code, bits), ["t"]) == {"t": expected}
