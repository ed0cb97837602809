"""AlterPartition (key 56, KIP-497): a leader asks the controller to store other in-sync replicas.

- Only the controller answers; anybody else, and one whose reign ends meanwhile, says NOT_CONTROLLER.
- A leader that has registered again since is told so (STALE_BROKER_EPOCH). From v3 the epoch of each proposed
  member is compared too: a broker that was started again in between has to catch up first (KIP-903).
"""

from __future__ import annotations

from broker.control.controller_store import ControllerMoved
from broker.control.proposed_isr import IsrProposal
from broker.server.context import RequestContext
from broker.server.registry import handles
from broker.server.turns import NO_LIMIT
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_request import AlterPartitionRequest
from protocol.messages.alter_partition_request import PartitionData as Proposed
from protocol.messages.alter_partition_response import AlterPartitionResponse, PartitionData, TopicData
from protocol.types import TopicPartition


@handles(AlterPartitionRequest, min=2, max=3, notes="between brokers", max_items=NO_LIMIT)
async def alter_partition(request: AlterPartitionRequest, context: RequestContext) -> AlterPartitionResponse:
    controller = context.broker.controller
    if controller is None or controller.core is None:
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
    core = controller.core
    leader = core.brokers.get(request.broker_id)
    if leader is None or 0 <= request.broker_epoch != leader.epoch:
        return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    names = {topic.topic_id: name for name, topic in core.topics.items()}
    proposals = {
        TopicPartition(names[topic.topic_id], data.partition_index): _proposal(data)
        for topic in request.topics
        if topic.topic_id in names
        for data in topic.partitions
    }
    try:
        verdicts = await controller.alter_isr(request.broker_id, proposals)
    except ControllerMoved:
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
    response = AlterPartitionResponse()
    for topic in request.topics:
        answers = []
        for data in topic.partitions:
            name = names.get(topic.topic_id)
            verdict = (
                ErrorCode.UNKNOWN_TOPIC_ID
                if name is None
                else verdicts[TopicPartition(name, data.partition_index)]
            )
            answer = PartitionData(partition_index=data.partition_index)
            if isinstance(verdict, ErrorCode):
                answer.error_code = verdict
            else:
                answer.leader_id, answer.leader_epoch = verdict.state.leader, verdict.state.leader_epoch
                answer.isr, answer.partition_epoch = list(verdict.state.isr), verdict.version
            answers.append(answer)
        response.topics.append(TopicData(topic_id=topic.topic_id, partitions=answers))
    return response


def _proposal(data: Proposed) -> IsrProposal:
    members = [(member.broker_id, member.broker_epoch) for member in data.new_isr_with_epochs]
    members += [(member, -1) for member in data.new_isr]
    return IsrProposal(data.leader_epoch, data.partition_epoch, tuple(members))
