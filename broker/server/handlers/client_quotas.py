"""DescribeClientQuotas (key 48, KIP-546): there are no quotas, so none is listed.

Kafka's configuration tool asks for quotas before it shows a user's SCRAM credentials. AlterClientQuotas is
not served: nothing here would keep a client within a quota.
"""

from __future__ import annotations

from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from protocol.messages.describe_client_quotas_response import DescribeClientQuotasResponse


@handles(DescribeClientQuotasRequest, min=0, max=1, notes="an empty list: there are no quotas yet")
def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_message=None, entries=[])
