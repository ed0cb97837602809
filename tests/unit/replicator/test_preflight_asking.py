"""What the check makes of a broker's answers about rights."""

from types import SimpleNamespace

import pytest

from protocol.client import Broker, ConnectError, ListedOffset
from protocol.errors import ErrorCode
from protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from protocol.messages.describe_log_dirs_response import DescribeLogDirsResponse
from protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from protocol.types import TopicPartition
from replicator.preflight import check_link
from replicator.preflight.asking import _disks, _group_rights, _topic_rights, ask_times
from replicator.preflight.facts import Rights, Side
from tests.unit.replicator.test_preflight import entry, facts

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


class Half:
    """A cluster of two brokers of which one cannot be reached; whoever asks for all topics comes upon it."""

    def __init__(self, cluster_id, silent=2):
        self.cluster_id, self._silent = cluster_id, silent
        self.brokers = {1: Broker("a", 1), 2: Broker("b", 1)}

    async def metadata(self, topics):
        if topics is None:
            raise ConnectError("b:1: Connection refused")

    async def connection_to(self, node):
        if node == self._silent:
            raise ConnectError("b:1: Connection refused")
        return SimpleNamespace(versions={})


async def test_a_broker_that_cannot_be_reached_is_named_also_where_nothing_else_can_be_asked():
    """The check broke off at the first question to it, and said no more than that."""
    found = await check_link(Half("c1"), Half("c2", silent=0), facts().settings)
    assert [(one.check, one.where) for one in found] == [
        ("connectivity", "east"),
        ("connectivity", "east->west"),
    ]
    assert "broker 2 cannot be reached at the address it gives" in found[0].what
    assert "advertised.listeners" in found[0].to_do
    with pytest.raises(ConnectError):
        await check_link(Half("c1", silent=0), Half("c2", silent=0), facts().settings)


class Times:
    """A partition with records at 0 to 9; those up to 4 are old, 9 is of tomorrow."""

    async def list_offsets(self, spots, **_):
        (spot,) = spots.values()
        offset = {-2: 0, -1: 10, -3: 9}.get(spot, 5)
        return {tp: ListedOffset(offset, 1 << 60, -1) for tp in spots}


@pytest.mark.parametrize(
    ("copied", "kind", "expected"),
    [(0, None, (1, 1)), (5, None, (0, 1)), (10, None, (0, 0)), (0, "LogAppendTime", (0, 0))],
)
async def test_only_what_is_not_copied_yet_can_be_refused_for_its_time(copied, kind, expected):
    """Of a link that ran for long all that had become old was called refused."""
    given = facts()
    given.target.defaults = {
        "log.message.timestamp.before.max.ms": "1000",
        "log.message.timestamp.after.max.ms": "1000",
    }
    given.target.configs = {"east.orders": {"message.timestamp.type": entry(kind)}} if kind else {}
    given.copied = {TopicPartition("orders", 0): copied}
    await ask_times(Times(), given)
    assert (len(given.too_old), len(given.too_new)) == expected


async def test_room_that_may_not_be_looked_at_is_said():
    """Kafka answers with a code and no directories: all had room then."""

    async def send_to(node, request, **_):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    side = Side("east", brokers={1: Broker("a", 1)})
    await _disks(SimpleNamespace(send_to=send_to), side, ["orders"])
    assert side.refused == {"log directories": "CLUSTER_AUTHORIZATION_FAILED"}
