"""How a client secures its connections, and the SASL exchange (KIP-43, KIP-84, KIP-152, KIP-368).

Owns what is to be known for it and the mechanisms PLAIN (RFC 4616) and SCRAM. Secrets never show in a repr
or an error. From Kafka's own settings (`security.protocol` and so on) it is made by `client.properties`.
"""

import asyncio
import ssl as tls
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from protocol.client.errors import AuthenticationError
from protocol.client.scram import ScramClient
from protocol.codec.schema import Request, Response
from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from protocol.scram import MECHANISMS, SCRAM_SHA_256, ScramError

R = TypeVar("R", bound=Response)


@dataclass(frozen=True, slots=True)
class SaslPlain:
    """User name and password, sent as they are: use it over TLS only."""

    username: str
    password: str = field(repr=False)

    @property
    def mechanism(self) -> str:
        return "PLAIN"

    def first_message(self) -> bytes:
        return b"\0".join((b"", self.username.encode(), self.password.encode()))


@dataclass(frozen=True, slots=True)
class SaslScram:
    """User name and password, which is proven and not sent."""

    username: str
    password: str = field(repr=False)
    mechanism: str = SCRAM_SHA_256.name


Sasl = SaslPlain | SaslScram


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """PLAINTEXT when empty; SSL with `ssl`; SASL_PLAINTEXT or SASL_SSL with `sasl`."""

    ssl: tls.SSLContext | None = None
    sasl: Sasl | None = None

    @property
    def protocol(self) -> str:
        """As security.protocol has it."""
        return ("SASL_" if self.sasl else "") + ("SSL" if self.ssl else "PLAINTEXT")


PLAINTEXT = ClientSecurity()


async def authenticate(send: Callable[[Request[Any]], Awaitable[Any]], sasl: Sasl, peer: str) -> float:
    """Runs the exchange over `send`. Returns for how many seconds it holds, 0 for ever.

    Raises `AuthenticationError`.
    """
    shake = await send(SaslHandshakeRequest(mechanism=sasl.mechanism))
    if shake.error_code:
        offered = ", ".join(shake.mechanisms) or "none"
        code = ErrorCode.of(shake.error_code).name
        raise AuthenticationError(
            f"{peer}: SASL mechanism {sasl.mechanism} is refused ({code}); offered: {offered}"
        )

    async def ask(message: bytes) -> Any:
        answer = await send(SaslAuthenticateRequest(auth_bytes=message))
        if answer.error_code:
            why = answer.error_message or ErrorCode.of(answer.error_code).name
            raise AuthenticationError(f"{peer}: user {sasl.username!r} is refused: {why}")
        return answer

    if isinstance(sasl, SaslPlain):
        answer = await ask(sasl.first_message())
    else:
        try:
            answer = await _prove(ask, sasl)
        except ScramError as error:
            raise AuthenticationError(f"{peer}: user {sasl.username!r}: {error}") from error
    return float(getattr(answer, "session_lifetime_ms", 0)) / 1000


async def _prove(ask: Callable[[bytes], Awaitable[Any]], sasl: SaslScram) -> Any:
    client = ScramClient(MECHANISMS[sasl.mechanism], sasl.username, sasl.password)
    challenge = await ask(client.first())
    answer = await ask(await asyncio.to_thread(client.final, bytes(challenge.auth_bytes)))
    client.verify(bytes(answer.auth_bytes))
    return answer
