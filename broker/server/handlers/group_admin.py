"""DescribeGroups (15), ListGroups (16), DeleteGroups (42): groups as operators see them.

- A group that does not exist is described as `Dead` without an error; from DescribeGroups v6 on with
  GROUP_ID_NOT_FOUND (KIP-1043).
- Members' metadata is shown for stable groups only: before that no protocol has been agreed on.
- ListGroups is incomplete, and says so by COORDINATOR_LOAD_IN_PROGRESS, while a partition is being read.
- ListGroups v4 filters by state (KIP-518), v5 by type too (KIP-848), both in any case of letters. All groups
  here are of the type `classic`.
"""

from __future__ import annotations

from broker.coordinator.groups.group import Group
from broker.coordinator.groups.states import GroupState
from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_groups_request import DeleteGroupsRequest
from protocol.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from protocol.messages.describe_groups_request import DescribeGroupsRequest
from protocol.messages.describe_groups_response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from protocol.messages.list_groups_request import ListGroupsRequest
from protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse

# Read, delete, describe as bits of AclOperation: everything is allowed until there are ACLs.
_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
_CLASSIC = "classic"
_NOT_FOUND_FROM = 6


@handles(DescribeGroupsRequest, min=0, max=6)
def describe_groups(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    groups = [_describe(group_id, context) for group_id in dict.fromkeys(request.groups)]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = _GROUP_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def _describe(group_id: str, context: RequestContext) -> DescribedGroup:
    try:
        group: Group | None = context.broker.groups.find(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    if group is None:
        unknown = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if context.api_version >= _NOT_FOUND_FROM:
            unknown.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            unknown.error_message = f"there is no group {group_id}"
        return unknown
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata_for(group.protocol) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


@handles(ListGroupsRequest, min=0, max=5)
def list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    coordinator = context.broker.groups
    wanted = {state.strip().lower() for state in request.states_filter}
    types = {each.strip().lower() for each in request.types_filter}
    groups: list[Group] = [] if types and _CLASSIC not in types else coordinator.all_groups()
    return ListGroupsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if coordinator.is_loading else ErrorCode.NONE,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=_CLASSIC,
            )
            for group in groups
            if not wanted or group.state.value.lower() in wanted
        ],
    )


@handles(DeleteGroupsRequest, min=0, max=2)
async def delete_groups(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=await _delete(group_id, context))
            for group_id in dict.fromkeys(request.groups_names)
        ]
    )


async def _delete(group_id: str, context: RequestContext) -> ErrorCode:
    try:
        code: ErrorCode = await context.broker.groups.offsets.delete_group(group_id)
    except KafkaError as error:
        return error.code
    return code
