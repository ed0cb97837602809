"""ApiVersions (key 18, KIP-35, KIP-511): what this broker serves, derived from the registry.

- A version that we do not know is answered with error 35 in a version 0 body that lists at least key 18, so
  that clients can pick a version to try again (the response header is always version 0, protocol.frames).
- From v3 the client names its software; a malformed name or version is INVALID_REQUEST.
- No features are finalized: transaction.version would switch clients to KIP-890 part 2.
"""

from __future__ import annotations

import re

from broker.server.context import RequestContext
from broker.server.registry import Registry, handles
from protocol.errors import ErrorCode
from protocol.messages.api_versions_request import ApiVersionsRequest
from protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(
    ApiVersionsRequest,
    min=0,
    max=4,
    notes="an unknown version is answered with error 35 in a v0 body (KIP-511); no finalized features",
)
def api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.software_name = name
        context.connection.software_version = version
    return ApiVersionsResponse(api_keys=advertised(context.broker.registry))


def advertised(registry: Registry) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=entry.key, min_version=entry.advertised_min, max_version=entry.max)
        for entry in registry
    ]


def unsupported_version(registry: Registry) -> ApiVersionsResponse:
    """The body for a version that is not served; to be encoded as version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=advertised(registry))
