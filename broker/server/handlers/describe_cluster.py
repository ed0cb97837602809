"""DescribeCluster (key 60, KIP-700): brokers, controller and cluster id, as this broker's cache knows them.

v1 can ask for controllers instead of brokers; there are none apart from the brokers here (KIP-919).
"""

from __future__ import annotations

from typing import Final

from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster_request import DescribeClusterRequest
from protocol.messages.describe_cluster_response import DescribeClusterBroker, DescribeClusterResponse

_BROKERS: Final = 1
_CONTROLLERS: Final = 2
# Create, alter, describe, cluster action, describe and alter configs, idempotent write: all of a cluster's.
_OPERATIONS: Final = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


@handles(DescribeClusterRequest, min=0, max=1)
def describe_cluster(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is a broker's address: ask for brokers",
        )
    cache, listener = context.broker.metadata, context.connection.listener
    response = DescribeClusterResponse(
        cluster_id=cache.cluster_id,
        controller_id=cache.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=info.broker_id,
                host=info.endpoints[listener].host,
                port=info.endpoints[listener].port,
                rack=info.rack,
            )
            for info in cache.alive(listener)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _OPERATIONS
    return response
