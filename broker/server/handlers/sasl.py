"""SaslHandshake (17) and SaslAuthenticate (36) where there is nothing to authenticate: ILLEGAL_SASL_STATE.

A listener with SASL answers them itself, before its client is known (`broker.server.sasl_gate`). Here arrive
those of plain listeners, and those of clients that are known already. Both are advertised on every listener,
as in Kafka (KIP-43, KIP-152).
"""

from __future__ import annotations

from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from protocol.messages.sasl_handshake_response import SaslHandshakeResponse


@handles(
    SaslHandshakeRequest,
    min=0,
    max=1,
    notes="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; after v0 the mechanism's messages are bare frames",
)
def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


@handles(
    SaslAuthenticateRequest, min=0, max=2, notes="ILLEGAL_SASL_STATE where nothing is to be authenticated"
)
def sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
