"""The order of requests on a SASL connection until its client is known, and when it must prove itself again.

ApiVersions (once), SaslHandshake, then messages of the mechanism: in SaslAuthenticate after handshake v1
(KIP-152), as bare frames after v0 (KIP-43). Everything else ends the connection. With a session time
(KIP-368) the client goes through handshake and mechanism again, as the same user with the same mechanism.
Plain state: frames in, steps out, a clock passed in. (Kafka: `SaslServerAuthenticator`.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from broker.security.mechanisms import NewServer, Refused, SaslServer
from protocol.api import ApiKey
from protocol.codec import decode_from
from protocol.codec.schema import Response
from protocol.errors import DecodeError, ErrorCode
from protocol.frames import RequestHead, decode_request_header, encode_response
from protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from protocol.types import Buffer

Segments = list[Buffer]
# Kafka lets a client begin anew at most once a second.
_BETWEEN_SESSIONS_S = 1.0


class State(Enum):
    VERSIONS_OR_HANDSHAKE = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    MECHANISM = "SaslAuthenticate"
    BARE_MECHANISM = "a message of the mechanism"
    DONE = "any request"
    FAILED = "nothing"


@dataclass(frozen=True, slots=True)
class Step:
    """What follows from a frame. `failure`: why the connection has to end, after `answer` if there is one."""

    answer: Segments | None = None
    failure: str | None = None
    versions: bool = False
    """The frame asks for ApiVersions: whoever serves them, answers, and calls `versions_answered`."""
    out_of_place: bool = False
    """The frame is another request amid a mechanism's exchange: its answer is ILLEGAL_SASL_STATE."""


class Authenticator:
    """One connection. `servers` are the mechanisms offered, in the order in which clients are told them."""

    def __init__(
        self,
        servers: Mapping[str, NewServer],
        now_s: Callable[[], float],
        session_ms: Mapping[str, int] | None = None,
    ) -> None:
        self._servers = servers
        self._now_s = now_s
        self._session_ms = session_ms or {}
        self.state = State.VERSIONS_OR_HANDSHAKE
        self.user: str | None = None
        self.mechanism = ""
        self.expires_s: float | None = None
        self._server: SaslServer | None = None
        self._again = False
        self._began_s: float | None = None

    @property
    def done(self) -> bool:
        return self.state is State.DONE

    def expired(self) -> bool:
        return self.expires_s is not None and self._now_s() > self.expires_s

    def may_begin_again(self) -> bool:
        """Whether a SaslHandshake now starts another authentication; otherwise it is just out of place."""
        if self.expires_s is None:
            return False
        now_s = self._now_s()
        if self._began_s is not None and now_s - self._began_s < _BETWEEN_SESSIONS_S:
            return False
        self._began_s = now_s
        self._again = True
        self.state = State.HANDSHAKE
        return True

    def versions_answered(self) -> None:
        """ApiVersions was answered without an error; it is not to be asked again."""
        self.state = State.HANDSHAKE

    def take(self, frame: memoryview) -> Step:
        """One frame of a client that is not known yet."""
        if self.state in (State.MECHANISM, State.BARE_MECHANISM) and self._server is None:
            # Kafka accepts the handshake, and parts without a word after it.
            return self._fail(f"a session of {self.mechanism} cannot go on with another mechanism")
        if self.state is State.BARE_MECHANISM:
            return self._bare(bytes(frame))
        try:
            head, position = decode_request_header(frame)
        except DecodeError as error:
            return self._fail(f"not a Kafka request: {error}")
        if self.state is State.MECHANISM:
            return self._authenticate(head, frame, position)
        if head.api_key == ApiKey.API_VERSIONS and self.state is State.VERSIONS_OR_HANDSHAKE:
            return Step(versions=True)
        if head.api_key == ApiKey.SASL_HANDSHAKE and self.state is not State.FAILED:
            return self._handshake(head, frame, position)
        return self._fail(f"API key {head.api_key} came where {self.state.value} was expected")

    def _handshake(self, head: RequestHead, frame: memoryview, position: int) -> Step:
        if head.api_version > SaslHandshakeRequest.VALID_VERSIONS[1] or head.api_version < 0:
            return self._fail(f"SaslHandshake version {head.api_version} is not served here")
        try:
            request, _ = decode_from(SaslHandshakeRequest, head.api_version, frame, position)
        except DecodeError as error:
            return self._fail(str(error))
        wanted = request.mechanism
        response = SaslHandshakeResponse(mechanisms=list(self._servers))
        if wanted not in self._servers:
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return self._fail(f"SASL mechanism {wanted!r} is not offered", _encode(response, head))
        self._server = self._servers[wanted]() if not self._again or wanted == self.mechanism else None
        if not self._again:
            self.mechanism = wanted
        self.state = State.MECHANISM if head.api_version else State.BARE_MECHANISM
        return Step(_encode(response, head))

    def _authenticate(self, head: RequestHead, frame: memoryview, position: int) -> Step:
        served = SaslAuthenticateRequest.VALID_VERSIONS
        if head.api_key != ApiKey.SASL_AUTHENTICATE or not served[0] <= head.api_version <= served[1]:
            self.state = State.FAILED
            what = (
                f"API key {head.api_key} version {head.api_version} came where SaslAuthenticate was expected"
            )
            return Step(failure=what, out_of_place=True)
        try:
            request, _ = decode_from(SaslAuthenticateRequest, head.api_version, frame, position)
        except DecodeError as error:
            return self._fail(str(error))
        try:
            message = self._evaluate(bytes(request.auth_bytes))
        except Refused as refused:
            told = refused.told or (
                f"Authentication failed during {'re-' * self._again}authentication due to invalid"
                f" credentials with SASL mechanism {self.mechanism}"
            )
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=told
            )
            return self._fail(refused.reason, _encode(response, head))
        lifetime_ms = self._begin_session() if self.done else 0
        response = SaslAuthenticateResponse(auth_bytes=message, session_lifetime_ms=lifetime_ms)
        return Step(_encode(response, head))

    def _bare(self, message: bytes) -> Step:
        try:
            answer = self._evaluate(message)
        except Refused as refused:
            return self._fail(refused.reason)
        if self.done:
            self._begin_session()
        return Step([len(answer).to_bytes(4) + answer])

    def _evaluate(self, message: bytes) -> bytes:
        """The mechanism's answer; the state says whether it is through. Raises Refused."""
        server = self._server
        assert server is not None
        answer = server.answer(message)
        user = server.user
        if user is None:
            return answer
        if self._again and user != self.user:
            text = f"Cannot change principals during re-authentication from {self.user} to {user}"
            raise Refused(text, text)
        self.user, self.state, self._server, self._again = user, State.DONE, None, False
        return answer

    def _begin_session(self) -> int:
        """How long it holds, 0 for ever."""
        session_ms = self._session_ms.get(self.mechanism, 0)
        if session_ms:
            self.expires_s = self._now_s() + session_ms / 1000
        return session_ms

    def _fail(self, reason: str, answer: Segments | None = None) -> Step:
        self.state = State.FAILED
        return Step(answer, reason)


def _encode(response: Response, head: RequestHead) -> Segments:
    return encode_response(response, head.api_version, head.correlation_id)
