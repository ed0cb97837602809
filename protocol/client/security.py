"""How a client secures its connections, and the SASL exchange (KIP-43, KIP-152).

Owns the settings and the PLAIN mechanism (RFC 4616). Secrets never show in a repr or an error.
"""

import ssl as tls
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from protocol.client.errors import AuthenticationError
from protocol.codec.schema import Request, Response
from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from protocol.messages.sasl_handshake_request import SaslHandshakeRequest

R = TypeVar("R", bound=Response)


@dataclass(frozen=True, slots=True)
class SaslPlain:
    """User name and password, sent as they are: use it over TLS only."""

    username: str
    password: str = field(repr=False)

    def first_message(self) -> bytes:
        return b"\0".join((b"", self.username.encode(), self.password.encode()))


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """PLAINTEXT when empty; SSL with `ssl`; SASL_PLAINTEXT or SASL_SSL with `sasl`."""

    ssl: tls.SSLContext | None = None
    sasl: SaslPlain | None = None


PLAINTEXT = ClientSecurity()


async def authenticate(send: Callable[[Request[Any]], Awaitable[Any]], sasl: SaslPlain, peer: str) -> None:
    """Runs the exchange over `send`. Raises `AuthenticationError`."""
    shake = await send(SaslHandshakeRequest(mechanism="PLAIN"))
    if shake.error_code:
        offered = ", ".join(shake.mechanisms) or "none"
        code = ErrorCode.of(shake.error_code).name
        raise AuthenticationError(f"{peer}: SASL mechanism PLAIN is refused ({code}); offered: {offered}")
    answer = await send(SaslAuthenticateRequest(auth_bytes=sasl.first_message()))
    if answer.error_code:
        why = answer.error_message or ErrorCode.of(answer.error_code).name
        raise AuthenticationError(f"{peer}: user {sasl.username!r} is refused: {why}")
