"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31), KIP-140, of a broker without an authorizer.

Answered as Apache Kafka does without `authorizer.class.name`: SECURITY_DISABLED. Being advertised, they let
tools tell "no security here" from "too old a broker".
"""

from __future__ import annotations

from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode
from protocol.messages.create_acls_request import CreateAclsRequest
from protocol.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from protocol.messages.delete_acls_request import DeleteAclsRequest
from protocol.messages.delete_acls_response import DeleteAclsFilterResult, DeleteAclsResponse
from protocol.messages.describe_acls_request import DescribeAclsRequest
from protocol.messages.describe_acls_response import DescribeAclsResponse

_NOTE = "SECURITY_DISABLED: there is no authorizer yet"
_MESSAGE = "this cluster has no authorizer: everybody may do everything"


@handles(DescribeAclsRequest, min=1, max=3, notes=_NOTE)
def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_MESSAGE)


@handles(CreateAclsRequest, min=1, max=3, notes=_NOTE)
def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_MESSAGE)
    return CreateAclsResponse(results=[refused] * len(request.creations))


@handles(DeleteAclsRequest, min=1, max=3, notes=_NOTE)
def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_MESSAGE)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
