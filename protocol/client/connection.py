"""One connection to one broker: requests out, answers in, several on the way at once.

Owns correlation ids, the versions that both sides speak (KIP-35, KIP-511), time limits, and what happens to
everybody waiting when the connection ends. Knows nothing of topics, leaders or retries. A request that
gets no answer in time closes the connection: nothing says that what comes next on it will ever come.
"""

import asyncio
import itertools
import math
import ssl as tls
import time
from collections.abc import Callable
from typing import Any, Final, Self, TypeVar

from protocol.api import APIS
from protocol.client.errors import (
    ClientError,
    ConnectError,
    ConnectionLostError,
    NotSupportedError,
    RequestTimeoutError,
    TurnedAwayError,
)
from protocol.client.frame_memory import FrameMemory
from protocol.client.frames import FrameReceiver
from protocol.client.reasons import reason
from protocol.client.security import Sasl, authenticate
from protocol.codec.schema import Request, Response
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.frames import correlation_id_of, decode_response, encode_request, with_header
from protocol.messages.api_versions_request import ApiVersionsRequest
from protocol.messages.api_versions_response import ApiVersionsResponse
from protocol.types import Buffer

R = TypeVar("R", bound=Response)

Answered = Callable[[memoryview | ClientError], None]
"""Hears the frame of an answer, or why there is none. Must not raise."""

DEFAULT_TIMEOUT_S: Final = 30.0
DEFAULT_MAX_FRAME: Final = 256 * 1024 * 1024

# Kafka's clients authenticate anew after 85 to 95 % of a session's time.
_USED_SHARE: Final = 0.85

_SOFTWARE: Final = {"client_software_name": "isthmus", "client_software_version": "0.1.0"}


class _Call:
    """Somebody who is called with the answer; as much of a future as the connection looks at."""

    __slots__ = ("_answered", "_over", "deadline", "request")

    def __init__(self, request: type[Request[Any]], deadline: float, answered: Answered) -> None:
        self.request = request
        self.deadline = deadline
        self._answered = answered
        self._over = False

    def done(self) -> bool:
        return self._over

    def set_result(self, frame: memoryview) -> None:
        self._over = True
        self._answered(frame)

    def set_exception(self, error: ClientError) -> None:
        self._over = True
        self._answered(error)


class Connection:
    """Made by `Connection.open`. `send` may be called by many tasks at once."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        timeout_s: float,
        max_frame: int,
        memory: FrameMemory | None = None,
    ) -> None:
        self.peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.versions: dict[int, tuple[int, int]] = {}
        """API key -> lowest and highest version that the broker speaks."""
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._waiting: dict[int, asyncio.Future[memoryview] | _Call] = {}
        self._watch: asyncio.TimerHandle | None = None
        """When the next of those that are called may be overdue."""
        self._ids = itertools.count(1)
        self._lost: str | None = None
        self._retire_at = math.inf
        self._writing = asyncio.Lock()
        self._writers = 0
        self._receiver = FrameReceiver(self._answer, self._end, max_frame, memory)
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "isthmus",
        ssl: tls.SSLContext | None = None,
        sasl: Sasl | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        connect_timeout_s: float | None = None,
        max_frame: int = DEFAULT_MAX_FRAME,
        memory: FrameMemory | None = None,
    ) -> Self:
        """Connects and agrees on versions, each within `connect_timeout_s`: who accepts and says nothing is
        not there either. Then authenticates, each step within `timeout_s`, which later requests have too.
        Large answers come in `memory`, where several connections are to share some.

        Raises `ConnectError` when there is nobody, `TurnedAwayError` when TLS fails, `AuthenticationError`,
        `TokenError`, or what `send` raises.
        """
        self = cls(host, port, client_id, timeout_s, max_frame, memory)
        connect_timeout_s = connect_timeout_s or timeout_s
        try:
            async with asyncio.timeout(connect_timeout_s):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: self._receiver, host, port, ssl=ssl, server_hostname=host if ssl else None
                )
        except TimeoutError:
            raise ConnectError(f"{self.peer}: no connection within {connect_timeout_s:g} s") from None
        except OSError as error:
            kind = TurnedAwayError if ssl and _was_there(error) else ConnectError
            raise kind(f"{self.peer}: cannot connect: {reason(error, host)}") from error
        self._transport = transport
        try:
            await self._agree_on_versions(connect_timeout_s)
            if sasl is not None:
                lifetime_s = await authenticate(self.send, sasl, self.peer)
                if lifetime_s:
                    self._retire_at = time.monotonic() + _USED_SHARE * lifetime_s
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def closed(self) -> bool:
        return self._lost is not None

    @property
    def retired(self) -> bool:
        """Whether the broker ends the session soon (KIP-368): ask on a new connection, close this one."""
        return time.monotonic() >= self._retire_at

    @property
    def waiting(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self._waiting)

    def version_of(self, request: type[Request[Any]], highest: int | None = None) -> int:
        """Newest version of the API that both sides speak, at most `highest`. Raises `NotSupportedError`."""
        low, high = request.VALID_VERSIONS
        if highest is not None:
            high = min(high, highest)
        theirs = self.versions.get(request.API_KEY)
        if theirs is None:
            raise NotSupportedError(f"{self.peer}: the broker does not offer {_name(request)}")
        version = min(high, theirs[1])
        if version < max(low, theirs[0]):
            raise NotSupportedError(
                f"{self.peer}: the broker speaks {_name(request)} versions {theirs[0]} to {theirs[1]},"
                f" this client {low} to {high}"
            )
        return version

    async def send(
        self,
        request: Request[R],
        version: int | None = None,
        *,
        timeout_s: float | None = None,
        encoded: Callable[[int], list[Buffer] | None] | None = None,
        read: Callable[[memoryview, type[Request[R]], int], R] | None = None,
    ) -> R:
        """The answer to `request`, in the newest common version unless one is given.

        `encoded(version)` gives the request's bytes where the caller has them already, for large ones that go
        to many brokers; None asks for it to be encoded here. `read` decodes the answer's frame where
        the caller knows better how.

        Buffers inside the request must not change before the answer is there. An error code inside the answer
        is the caller's to look at. Raises `ConnectionLostError`, `RequestTimeoutError`, `NotSupportedError`,
        `DecodeError`, `EncodeError`.
        """
        if version is None:
            version = self.version_of(type(request))
        body = None if encoded is None else encoded(version)
        frame = await self._exchange(
            request, version, self._timeout_s if timeout_s is None else timeout_s, body
        )
        try:
            if read is not None:
                return read(frame, type(request), version)
            return decode_response(frame, type(request), version)[1]
        except DecodeError as error:
            raise DecodeError(f"{self.peer}: answer to {_name(type(request))}: {error}") from error

    def call(self, request: type[Request[Any]], version: int, body: list[Buffer], answered: Answered) -> bool:
        """As `send`, without a task, a future and a timer for each: `answered` is called with the answer's
        frame, or with the error. `body` is the encoded request. False where one would have to wait before
        writing (`writable`), or the connection is lost: nothing is sent then."""
        transport = self._transport
        if self.full or self._lost is not None or transport is None:
            return False
        correlation_id = next(self._ids) & 0x7FFF_FFFF
        segments = with_header(request, version, correlation_id, self._client_id, body)
        loop = asyncio.get_running_loop()
        self._waiting[correlation_id] = _Call(request, loop.time() + self._timeout_s, answered)
        if self._watch is None:
            self._watch = loop.call_later(self._timeout_s, self._look)
        transport.writelines(segments)
        return True

    async def frame(self, request: type[Request[Any]], version: int, body: list[Buffer]) -> memoryview:
        """As `send`, for who encodes requests and reads answers himself: the frame of the answer."""
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

        def answered(given: memoryview | ClientError) -> None:
            if answer.done():  # nobody waits any more
                return
            if isinstance(given, memoryview):
                answer.set_result(given)
            else:
                answer.set_exception(given)

        while not self.call(request, version, body, answered):
            if self._lost is not None:
                raise ConnectionLostError(f"{self.peer}: {self._lost}")
            await self.writable()
        return await answer

    @property
    def full(self) -> bool:
        """Whether `call` would have to wait."""
        return bool(self._writers) or self._receiver.full

    async def writable(self) -> None:
        """Waits while the broker takes bytes more slowly than we have them, until the connection ends."""
        async with self._writing:
            await self._receiver.writable()

    def _look(self) -> None:
        """Finds out whether a call is overdue; they were made in the order of their deadlines."""
        self._watch = None
        call = next((entry for entry in self._waiting.values() if isinstance(entry, _Call)), None)
        if call is None or self._lost is not None:
            return
        loop = asyncio.get_running_loop()
        if call.deadline > loop.time():
            self._watch = loop.call_at(call.deadline, self._look)
        else:
            self._give_up(call, call.request, self._timeout_s)

    async def post(self, request: Request[Any], version: int | None = None) -> None:
        """Sends a request that gets no answer (Produce with acks=0)."""
        if version is None:
            version = self.version_of(type(request))
        await self._write(self._encode(request, version, next(self._ids) & 0x7FFF_FFFF))

    async def close(self) -> None:
        """Ends the connection; whoever still waits gets `ConnectionLostError`."""
        self.abort()
        if self._transport is not None:
            await asyncio.shield(self._receiver.closed)  # several may close it, and one of them give up

    def abort(self) -> None:
        """`close` without waiting for the socket."""
        if self._transport is not None:
            self._end("this side closed the connection")
            self._transport.abort()

    async def _exchange(
        self, request: Request[Any], version: int, timeout_s: float, body: list[Buffer] | None = None
    ) -> memoryview:
        correlation_id = next(self._ids) & 0x7FFF_FFFF
        segments = self._encode(request, version, correlation_id, body)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[memoryview] = loop.create_future()
        self._waiting[correlation_id] = answer
        # One timer of the loop's own: asyncio.timeout costs as much as a small request.
        overdue = loop.call_later(timeout_s, self._overdue, answer, type(request), timeout_s)
        try:
            if not self._written(segments):
                await self._write(segments)
            return await answer
        except ConnectionLostError as error:
            if answer.done() and isinstance(late := answer.exception(), RequestTimeoutError):
                raise late from None
            raise ConnectionLostError(f"{self.peer}: no answer to {_name(type(request))}: {error}") from None
        finally:
            overdue.cancel()
            # When the caller gave up, the entry stays: the answer may still come and has to be known as ours.
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # looked at, so that nobody warns of it when the caller was cancelled

    def _overdue(
        self, answer: asyncio.Future[memoryview], request: type[Request[Any]], timeout_s: float
    ) -> None:
        if not answer.done():
            self._give_up(answer, request, timeout_s)

    def _give_up(
        self, answer: asyncio.Future[memoryview] | _Call, request: type[Request[Any]], timeout_s: float
    ) -> None:
        self._receiver.abort(f"an earlier request ({_name(request)}) timed out")
        answer.set_exception(
            RequestTimeoutError(f"{self.peer}: no answer to {_name(request)} within {timeout_s:g} s")
        )

    def _encode(
        self,
        request: Request[Any],
        version: int,
        correlation_id: int,
        body: list[Buffer] | None = None,
    ) -> list[Buffer]:
        if body is not None:
            return with_header(type(request), version, correlation_id, self._client_id, body)
        return encode_request(request, version, correlation_id, self._client_id)

    def _written(self, segments: list[Buffer]) -> bool:
        """Writes at once where nobody waits to write."""
        if self.full or self._lost is not None or self._transport is None:
            return False
        self._transport.writelines(segments)
        return True

    async def _write(self, segments: list[Buffer]) -> None:
        self._writers += 1
        try:
            async with self._writing:  # who waits for a slow peer is not overtaken by who comes later
                await self._receiver.writable()
                if self._lost is not None or self._transport is None:
                    raise ConnectionLostError(self._lost or "never connected")
                self._transport.writelines(segments)
        finally:
            self._writers -= 1

    def _answer(self, frame: memoryview) -> None:
        try:
            correlation_id = correlation_id_of(frame)
        except DecodeError as error:
            self._receiver.abort(str(error))
            return
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            self._receiver.abort(f"it answered request {correlation_id}, which was never sent")
        elif not waiting.done():
            waiting.set_result(frame)

    def _end(self, reason: str) -> None:
        if self._lost is not None:
            return
        self._lost = reason
        if self._watch is not None:
            self._watch.cancel()
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionLostError(reason))

    async def _agree_on_versions(self, timeout_s: float) -> None:
        version = ApiVersionsRequest.VALID_VERSIONS[1]
        answer = await self._api_versions(version, timeout_s)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # KIP-511: the refusal may say which versions of ApiVersions itself are spoken.
            offered = [
                row.max_version for row in answer.api_keys if row.api_key == ApiVersionsRequest.API_KEY
            ]
            answer = await self._api_versions(min(version, *offered) if offered else 0, timeout_s)
        if answer.error_code:
            raise KafkaError(ErrorCode.of(answer.error_code), f"{self.peer}: ApiVersions")
        self.versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    async def _api_versions(self, version: int, timeout_s: float) -> ApiVersionsResponse:
        request = ApiVersionsRequest(**_SOFTWARE)
        frame = await self._exchange(request, version, timeout_s)
        refused = bytes(frame[4:6]) == b"\x00\x23"  # 35 stands first in a body of version 0
        return decode_response(frame, ApiVersionsRequest, 0 if refused else version)[1]


def _was_there(error: OSError) -> bool:
    """Whether the attempt got as far as TLS."""
    return isinstance(error, tls.SSLError | ConnectionResetError | BrokenPipeError | ConnectionAbortedError)


def _name(request: type[Request[Any]]) -> str:
    api = APIS.get(request.API_KEY)
    return api.name if api else request.__name__
