"""ElectLeaders (key 43, KIP-183 and KIP-460): is an election needed, and if so, can it be had?

With one replica there is nothing to choose: a partition is led by its preferred replica or by nobody, and an
offline replica can not be elected. Handing leadership from a replica in sync to the preferred one is the
controller's work, which it does not offer yet; such a partition is answered PREFERRED_LEADER_NOT_AVAILABLE.

Null topics mean all partitions, and leave out those that need no election (`ReplicationControlManager`).
"""

from __future__ import annotations

from broker.control.metadata_cache import MetadataCache, PartitionInfo
from broker.server.context import RequestContext
from broker.server.registry import handles
from broker.server.turns import NO_LIMIT, Turns
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from protocol.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED, UNCLEAN = 0, 1
_CODE_FROM = 1  # ElectLeaders v0 has no place for an error of the whole request


@handles(
    ElectLeadersRequest,
    min=0,
    max=2,
    notes="answers only: the controller elects by itself",
    max_items=NO_LIMIT,
)
async def elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    metadata, everything = context.broker.metadata, request.topic_partitions is None
    asked = request.topic_partitions
    if asked is None:
        asked = [
            TopicPartitions(topic=name, partitions=sorted(topic.partitions))
            for name, topic in metadata.topics.items()
        ]
    if request.election_type not in (PREFERRED, UNCLEAN):
        return _refused(asked, context.api_version, f"there is no election type {request.election_type}")
    results, turns = [], Turns()
    async for topic in turns.of(asked):
        elections = [
            _election(metadata, topic.topic, index, request) async for index in turns.of(topic.partitions)
        ]
        if everything:
            elections = [each for each in elections if each.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=elections))
    return ElectLeadersResponse(replica_election_results=results)


def _refused(asked: list[TopicPartitions], version: int, why: str) -> ElectLeadersResponse:
    code = ErrorCode.INVALID_REQUEST
    results = [
        ReplicaElectionResult(
            topic=topic.topic, partition_result=[_result(index, code, why) for index in topic.partitions]
        )
        for topic in asked
    ]
    whole = code if version >= _CODE_FROM else ErrorCode.NONE
    return ElectLeadersResponse(error_code=whole, replica_election_results=results)


def _election(
    metadata: MetadataCache, topic: str, index: int, request: ElectLeadersRequest
) -> PartitionResult:
    known = metadata.topic(topic)
    if known is None:
        return _result(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
    partition = known.partitions.get(index)
    if partition is None:
        return _result(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
    if _settled(partition, request.election_type):
        return _result(
            index, ErrorCode.ELECTION_NOT_NEEDED, f"{topic}-{index} is led by {partition.leader} already"
        )
    if request.election_type == PREFERRED:
        return _result(
            index,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {partition.replicas[0]} can not take the leadership of {topic}-{index} now",
        )
    return _result(index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {topic}-{index} is alive")


def _settled(partition: PartitionInfo, election_type: int) -> bool:
    if election_type == PREFERRED:
        return partition.leader == partition.replicas[0]
    return partition.leader >= 0


def _result(index: int, code: ErrorCode, message: str) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=message)
