"""JoinGroup (11), SyncGroup (14), Heartbeat (12), LeaveGroup (13): membership of groups.

- Dynamic members get their id in a first step from JoinGroup v4 on (MEMBER_ID_REQUIRED, KIP-394); static
  members (v5, KIP-345) and skipped assignments (v9, KIP-814) as in `broker.coordinator.groups`.
- JoinGroup v0 must stay advertised: librdkafka before 2.11 reads it as a sign of balanced consumers.
- While the coordinator loads, Heartbeat is answered with success and SyncGroup with REBALANCE_IN_PROGRESS:
  older clients do not expect 14 there (as Kafka does).
- SyncGroup v5 must name the protocol and its type (INCONSISTENT_GROUP_PROTOCOL, KIP-559).
- LeaveGroup before v3 names one member; its error is the answer's.
"""

from __future__ import annotations

from broker.coordinator.groups.events import JoinCall, Joined, Leaving, SyncCall, Synced
from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.heartbeat_request import HeartbeatRequest
from protocol.messages.heartbeat_response import HeartbeatResponse
from protocol.messages.join_group_request import JoinGroupRequest
from protocol.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from protocol.messages.leave_group_request import LeaveGroupRequest
from protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from protocol.messages.sync_group_request import SyncGroupRequest
from protocol.messages.sync_group_response import SyncGroupResponse

_MEMBER_ID_FIRST_FROM = 4
_PROTOCOL_MAY_BE_NULL_FROM = 7
_SKIP_ASSIGNMENT_FROM = 9
_SEVERAL_LEAVE_FROM = 3
_SYNC_NAMES_PROTOCOL_FROM = 5  # KIP-559


@handles(JoinGroupRequest, min=0, max=9, abandoned_on_close=True)
async def join_group(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    version = context.api_version
    call = JoinCall(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.connection.peer_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=(
            request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        requires_known_member=version >= _MEMBER_ID_FIRST_FROM,
        can_skip_assignment=version >= _SKIP_ASSIGNMENT_FROM,
    )
    try:
        joined = await context.broker.groups.join(request.group_id, call)
    except KafkaError as error:
        joined = Joined(error=error.code, member_id=request.member_id)
    nothing = None if version >= _PROTOCOL_MAY_BE_NULL_FROM else ""
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=nothing if joined.protocol is None else joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
            )
            for each in joined.members
        ],
    )


@handles(SyncGroupRequest, min=0, max=5, abandoned_on_close=True)
async def sync_group(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    if context.api_version >= _SYNC_NAMES_PROTOCOL_FROM and None in (
        request.protocol_type,
        request.protocol_name,
    ):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    call = SyncCall(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    try:
        synced = await context.broker.groups.sync(request.group_id, call)
    except KafkaError as error:
        loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        synced = Synced(error=ErrorCode.REBALANCE_IN_PROGRESS if loading else error.code)
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


@handles(HeartbeatRequest, min=0, max=4)
def heartbeat(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    try:
        code = context.broker.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    except KafkaError as error:
        loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        code = ErrorCode.NONE if loading else error.code
    return HeartbeatResponse(error_code=code)


@handles(LeaveGroupRequest, min=0, max=5)
def leave_group(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    several = context.api_version >= _SEVERAL_LEAVE_FROM
    leavings = (
        [Leaving(each.member_id, each.group_instance_id) for each in request.members]
        if several
        else [Leaving(request.member_id, None)]
    )
    try:
        errors = context.broker.groups.leave(request.group_id, leavings)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not several:
        return LeaveGroupResponse(error_code=errors[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=leaving.member_id, group_instance_id=leaving.instance_id, error_code=error
            )
            for leaving, error in zip(leavings, errors, strict=True)
        ]
    )
