"""ApiVersions (key 18, KIP-35, KIP-511): what this broker serves, derived from the registry.

- A version that we do not know is answered with error 35 in a version 0 body that lists at least key 18, so
  that clients can pick a version to try again (the response header is always version 0, protocol.frames).
- From v3 the client names its software; a malformed name or version is INVALID_REQUEST.
- Features come with v3 (KIP-584). One whose lowest level is 0 is named from v4 on only: older clients could
  not decode it (KAFKA-17492). Clients use transactions of version 2 (KIP-890) where they are finalized.
- Private APIs are named to isthmus alone (`protocol.private`).
"""

from __future__ import annotations

import re

from broker.control.features import SUPPORTED
from broker.server.context import RequestContext
from broker.server.registry import Registry, handles
from protocol.api import APIS
from protocol.errors import ErrorCode
from protocol.messages.api_versions_request import ApiVersionsRequest
from protocol.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_ZERO_FROM = 4
_OUR_OWN = "isthmus"
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(
    ApiVersionsRequest,
    min=0,
    max=4,
    notes="an unknown version is answered with error 35 in a v0 body (KIP-511); feature transaction.version",
)
def api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    if context.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.software_name = name
        context.connection.software_version = version
    finalized = context.broker.features.finalized
    return ApiVersionsResponse(
        api_keys=advertised(context.broker.registry, private=context.connection.software_name == _OUR_OWN),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=levels.low, max_version=levels.high)
            for name, levels in SUPPORTED.items()
            if levels.low > 0 or context.api_version >= _ZERO_FROM
        ],
        finalized_features_epoch=finalized.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized.levels.items()
            if level > 0
        ],
    )


def advertised(registry: Registry, *, private: bool = False) -> list[ApiVersion]:
    return [
        ApiVersion(api_key=entry.key, min_version=entry.advertised_min, max_version=entry.max)
        for entry in registry
        if private or not APIS[entry.key].is_private
    ]


def unsupported_version(registry: Registry) -> ApiVersionsResponse:
    """The body for a version that is not served; to be encoded as version 0."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=advertised(registry))
