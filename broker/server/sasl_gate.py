"""Between a SASL listener's connections and the dispatcher: lets frames through once their client is known.

Each connection has a `SaslSession`, with the rules of `broker.security.authenticator`. A refused client hears
of it after `connection.failed.authentication.delay.ms`, so that guessing is slow, and its connection ends.
Before that it may send frames of `sasl.server.max.receive.size` and has `AUTHENTICATION_S` in all.
Listeners without SASL have no gate and pay nothing. (Kafka: `Selector`, `KafkaChannel`.)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.security.authenticator import Authenticator, Step
from broker.security.mechanisms import NewServer
from broker.security.principals import user_principal
from broker.server.answer_order import Outcome, Pending, Segments
from broker.server.context import ConnectionInfo
from broker.server.edge import CloseConnectionError, Connection, Serve
from broker.server.error_answers import error_answer
from protocol.api import APIS, ApiKey
from protocol.codec import decode_from
from protocol.errors import DecodeError, EncodeError, ErrorCode
from protocol.frames import decode_request_header, encode_response

if TYPE_CHECKING:
    from broker.config.security_settings import ListenerSecurity

# Kafka bounds it by connections.max.idle.ms alone, which a byte now and then renews.
AUTHENTICATION_S = 60.0
# Larger ones are not looked at closely enough for an answer of their own.
_ANSWERED = 32 * 1024
_HANDSHAKE = ApiKey.SASL_HANDSHAKE.to_bytes(2)
# Where the error code is in an answer of ApiVersions: behind size and correlation id.
_VERSIONS_CODE = slice(8, 10)

Refused = Callable[[ConnectionInfo, BaseException], None]


class SaslSession:
    """What the gate keeps of one connection."""

    __slots__ = ("authenticator", "connection", "known", "since_s")

    def __init__(self, authenticator: Authenticator, connection: Connection, since_s: float) -> None:
        self.authenticator = authenticator
        self.connection = connection
        self.since_s = since_s
        self.known = False


class SaslGate:
    """`serve` answers the requests of clients that are known. `refused` gets each failure, for the log."""

    def __init__(
        self,
        serve: Serve,
        servers: Mapping[str, NewServer],
        *,
        session_ms: Mapping[str, int],
        max_receive: int,
        max_frame: int,
        failure_delay_s: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._serve = serve
        self._servers = servers
        self._session_ms = session_ms
        self.max_receive = max_receive
        self._max_frame = max_frame
        self._failure_delay_s = failure_delay_s
        self._now_s = now_s
        self.refused: Refused = lambda info, error: None
        self.authenticated = 0
        self.reauthenticated = 0
        self.failed = 0
        self.expired = 0

    @classmethod
    def of_listener(
        cls,
        serve: Serve,
        servers: Mapping[str, NewServer],
        security: ListenerSecurity,
        *,
        session_ms: Mapping[str, int],
        max_frame: int,
        now_s: Callable[[], float],
    ) -> SaslGate:
        return cls(
            serve,
            servers,
            session_ms=session_ms,
            max_receive=security.sasl_server_max_receive_size,
            max_frame=max_frame,
            failure_delay_s=security.connection_failed_authentication_delay_ms / 1000,
            now_s=now_s,
        )

    def admit(self, connection: Connection) -> None:
        """A new connection, before anything was received on it."""
        authenticator = Authenticator(self._servers, self._now_s, self._session_ms)
        connection.info.sasl = SaslSession(authenticator, connection, self._now_s())

    def overdue(self, info: ConnectionInfo) -> bool:
        """Whether the client had time enough to say who it is."""
        session = info.sasl
        return (
            session is not None
            and session.authenticator.user is None
            and self._now_s() - session.since_s > AUTHENTICATION_S
        )

    def serve(self, frame: memoryview, info: ConnectionInfo) -> Outcome:
        """What the edge calls with each frame. Raises CloseConnectionError."""
        session = info.sasl
        assert session is not None
        authenticator = session.authenticator
        if authenticator.done:
            if authenticator.expires_s is None:
                return self._serve(frame, info)
            if frame[:2] != _HANDSHAKE or not authenticator.may_begin_again():
                if authenticator.expired():
                    self.expired += 1
                    raise CloseConnectionError(
                        f"the session of user {authenticator.user!r} has ended (connections.max.reauth.ms)"
                    )
                return self._serve(frame, info)
        step = authenticator.take(frame)
        if step.versions:
            return self._versions(frame, info, authenticator)
        if step.failure is not None:
            return self._refuse(step, frame, info)
        if authenticator.done:
            self._let_in(session, info)
        return step.answer

    def _let_in(self, session: SaslSession, info: ConnectionInfo) -> None:
        user = session.authenticator.user
        assert user is not None
        if session.known:
            self.reauthenticated += 1
            return
        self.authenticated += 1
        session.known = True
        info.principal = user_principal(user)
        session.connection.accept_frames(self._max_frame)

    def _versions(self, frame: memoryview, info: ConnectionInfo, authenticator: Authenticator) -> Outcome:
        answer = self._serve(frame, info)
        if isinstance(answer, list) and bytes(answer[0][_VERSIONS_CODE]) == b"\0\0":
            authenticator.versions_answered()
        return answer

    def _refuse(self, step: Step, frame: memoryview, info: ConnectionInfo) -> Pending:
        self.failed += 1
        self.refused(info, CloseConnectionError(f"authentication failed: {step.failure}"))
        answer = _illegal_state(frame) if step.out_of_place else step.answer
        return Pending(self._told_later(answer), abandoned_on_close=True, last=True)

    async def _told_later(self, answer: Segments | None) -> Segments | None:
        await asyncio.sleep(self._failure_delay_s)
        return answer


def _illegal_state(frame: memoryview) -> Segments | None:
    """ILLEGAL_SASL_STATE in the layout of the request, where it has one."""
    if len(frame) > _ANSWERED:
        return None
    try:
        head, position = decode_request_header(frame)
        request, _ = decode_from(APIS[head.api_key].request, head.api_version, frame, position)
        answer = error_answer(request, head.api_version, ErrorCode.ILLEGAL_SASL_STATE)
        return None if answer is None else encode_response(answer, head.api_version, head.correlation_id)
    except (DecodeError, EncodeError):
        return None
