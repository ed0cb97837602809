"""How a client secures its connections, and the SASL exchange (KIP-43, KIP-84, KIP-152, KIP-368).

Owns what is to be known for it and the exchange of PLAIN (RFC 4616), SCRAM and OAUTHBEARER (RFC 7628).
Secrets never show in a repr or an error. From Kafka's own settings (`security.protocol` and so on) it is made
by `client.properties`; tokens come from `client.oauth`.
"""

import asyncio
import ssl as tls
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from protocol.client.errors import AuthenticationError, TokenError
from protocol.client.oauth import bearer
from protocol.client.oauth.keeping import Tokens
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


@dataclass(frozen=True, slots=True)
class SaslBearer:
    """Tokens that somebody else vouches for, shown as they are: use it over TLS only. `extensions` are named
    besides, for brokers that want to know more."""

    tokens: Tokens
    extensions: bearer.Extensions = ()

    @property
    def mechanism(self) -> str:
        return bearer.MECHANISM


_WRITTEN: Final = "it is read again: whatever keeps it there has to write a new one"

Sasl = SaslPlain | SaslScram | SaslBearer
Ask = Callable[[bytes], Awaitable[Any]]


class SecuritySettingsError(ValueError):
    """A setting is wrong or missing; the message begins with its name."""


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
        return await send(SaslAuthenticateRequest(auth_bytes=message))

    if isinstance(sasl, SaslBearer):
        answer = await _show(ask, sasl, peer)
    elif isinstance(sasl, SaslPlain):
        answer = _taken(await ask(sasl.first_message()), sasl.username, peer)
    else:
        answer = await _prove(ask, sasl, peer)
    return float(getattr(answer, "session_lifetime_ms", 0)) / 1000


def _taken(answer: Any, user: str, peer: str) -> Any:
    if answer.error_code:
        raise AuthenticationError(f"{peer}: user {user!r} is refused: {_why(answer)}")
    return answer


def _why(answer: Any) -> str:
    return answer.error_message or ErrorCode.of(answer.error_code).name


async def _prove(ask: Ask, sasl: SaslScram, peer: str) -> Any:
    client = ScramClient(MECHANISMS[sasl.mechanism], sasl.username, sasl.password)
    try:
        challenge = _taken(await ask(client.first()), sasl.username, peer)
        final = await asyncio.to_thread(client.final, bytes(challenge.auth_bytes))
        answer = _taken(await ask(final), sasl.username, peer)
        client.verify(bytes(answer.auth_bytes))
    except ScramError as error:
        raise AuthenticationError(f"{peer}: user {sasl.username!r}: {error}") from error
    return answer


async def _show(ask: Ask, sasl: SaslBearer, peer: str) -> Any:
    """Raises TokenError for a token that was taken before: there may be a newer one."""
    token = await sasl.tokens.current(peer.rpartition(":")[0].strip("[]"))
    answer = await ask(bearer.first_message(token, sasl.extensions))
    why = ""
    if challenge := bytes(answer.auth_bytes):
        why = bearer.refusal(challenge)
        answer = await ask(bearer.ACKNOWLEDGED)  # the broker's own words come after this
    if not answer.error_code and not why:
        sasl.tokens.accepted(token)
        return answer
    why = _why(answer) if answer.error_code else why
    ended_s = time.time() - token.ends if token.ends else 0.0
    if ended_s > 0:
        why += f" (it ended {ended_s:.0f} s ago by this machine's clock)"
    said = f"{peer}: the token from {sasl.tokens.place} is refused: {why}"
    if sasl.tokens.refused(token):
        raise TokenError(said, "another one is asked for" if sasl.tokens.keeps else _WRITTEN)
    raise AuthenticationError(said)
