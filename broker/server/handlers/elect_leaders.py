"""ElectLeaders (key 43, KIP-183 and KIP-460): have the controller elect preferred leaders, or unclean ones.

What can be seen from here to need no election, or not to exist, is answered at once; the controller decides
the rest, and any other broker says NOT_CONTROLLER. An answer comes when the election is stored; the client
learns of the new leader by metadata.

Before an unclean election the living replicas are asked where their logs end, so that the longest one leads.

Null topics mean all partitions, and leave out those that need no election (`ReplicationControlManager`).
"""

from __future__ import annotations

from functools import partial

from broker.control.controller_jobs import elect_leaders as elect_leaders_job
from broker.control.controller_store import ControllerMoved
from broker.control.elections import Election
from broker.control.metadata_cache import MetadataCache, PartitionInfo
from broker.server.context import RequestContext
from broker.server.registry import handles
from broker.server.replica_ends import replica_ends
from broker.server.turns import NO_LIMIT, Turns
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from protocol.messages.elect_leaders_response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from protocol.types import TopicPartition

_CODE_FROM = 1  # ElectLeaders v0 has no place for an error of the whole request


@handles(ElectLeadersRequest, min=0, max=2, max_items=NO_LIMIT)
async def elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    metadata, everything = context.broker.metadata, request.topic_partitions is None
    asked = request.topic_partitions
    if asked is None:
        asked = [
            TopicPartitions(topic=name, partitions=sorted(topic.partitions))
            for name, topic in metadata.topics.items()
        ]
    if request.election_type not in (Election.PREFERRED, Election.UNCLEAN):
        code, why = ErrorCode.INVALID_REQUEST, f"there is no election type {request.election_type}"
        return _refused(asked, context.api_version, code, why)
    results: list[ReplicaElectionResult] = []
    turns = Turns()
    wanted: dict[TopicPartition, PartitionResult] = {}
    async for topic in turns.of(asked):
        elections = []
        async for index in turns.of(topic.partitions):
            result = _looked_at(metadata, topic.topic, index, request)
            if result.error_code == ErrorCode.NONE:
                wanted[TopicPartition(topic.topic, index)] = result
            elections.append(result)
        if everything:
            elections = [each for each in elections if each.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=elections))
    try:
        await _elect(context, Election(request.election_type), wanted)
    except ControllerMoved as error:
        return _refused(asked, context.api_version, ErrorCode.NOT_CONTROLLER, str(error))
    return ElectLeadersResponse(replica_election_results=results)


async def _elect(
    context: RequestContext, kind: Election, wanted: dict[TopicPartition, PartitionResult]
) -> None:
    """Have leaders elected and note what came of it. Raises ControllerMoved."""
    if not wanted:
        return
    controller = context.broker.controller
    if controller is None:
        raise ControllerMoved("this broker is never the controller")
    if not controller.active:
        raise ControllerMoved("this broker is not the controller")
    ends = await replica_ends(context.broker, wanted) if kind is Election.UNCLEAN else {}
    results = await controller.ask(partial(elect_leaders_job, kind=kind, partitions=list(wanted), ends=ends))
    for partition, error in results.items():
        if error is not None:
            wanted[partition].error_code = error.code
            wanted[partition].error_message = error.message


def _refused(asked: list[TopicPartitions], version: int, code: ErrorCode, why: str) -> ElectLeadersResponse:
    results = [
        ReplicaElectionResult(
            topic=topic.topic, partition_result=[_result(index, code, why) for index in topic.partitions]
        )
        for topic in asked
    ]
    whole = code if version >= _CODE_FROM else ErrorCode.NONE
    return ElectLeadersResponse(error_code=whole, replica_election_results=results)


def _looked_at(
    metadata: MetadataCache, topic: str, index: int, request: ElectLeadersRequest
) -> PartitionResult:
    """No error where an election is to be held."""
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
    return _result(index, ErrorCode.NONE, None)


def _settled(partition: PartitionInfo, election_type: int) -> bool:
    if election_type == Election.PREFERRED:
        return partition.leader == partition.replicas[0]
    return partition.leader >= 0


def _result(index: int, code: ErrorCode, message: str | None) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=message)
