"""From a frame to an answer: header, registry look-up, decode, handler, encode.

Owns the rules of what ends a connection. A frame that does not decode, an unknown key or version (except
ApiVersions, KIP-511) and an acks=0 request that failed close the connection, as Kafka does. A handler's
unexpected exception is answered with UNKNOWN_SERVER_ERROR (REQUEST_TIMED_OUT where ZooKeeper was lost) in the
request's own layout, where that has a place for it. Large requests are decoded and encoded in a thread, and
only handlers that work in turns may be asked for more than `turns.MAX_ITEMS` things at once (I11).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.control.zookeeper_types import ZooKeeperError
from broker.server.answer_order import Deferred, Outcome, Pending, Segments
from broker.server.context import ConnectionInfo, RequestContext
from broker.server.edge import CloseConnectionError
from broker.server.error_answers import error_answer
from broker.server.handlers.api_versions import unsupported_version
from broker.server.registry import Entry, InOrder, Registry
from broker.server.turns import count_items
from protocol.codec import decode_from, encode
from protocol.errors import DecodeError, EncodeError, ErrorCode
from protocol.frames import RequestHead, decode_request_header, encode_response
from protocol.plain_produce import PlainAcks, PlainProduce

if TYPE_CHECKING:
    from broker.server.app import Broker

PRODUCE = 0
API_VERSIONS = 18
# A frame of this size holds at most 16,000 items of two bytes: some tens of milliseconds.
LARGE = 32 * 1024


class _Call(NamedTuple):
    """One request on its way to an answer."""

    entry: Entry
    head: RequestHead
    request: Any
    connection: ConnectionInfo
    large: bool = False
    """Encoding its answer takes a thread."""


class Dispatcher:
    """`serve` is what the edge calls with each frame. Counts requests by key for the metrics."""

    def __init__(self, broker: Broker, registry: Registry) -> None:
        self._broker = broker
        self._registry = registry
        self._monotonic = broker.clock.monotonic
        self.requests: dict[int, int] = {}
        self.failures: dict[int, int] = {}

    def serve(self, frame: memoryview, connection: ConnectionInfo) -> Outcome:
        """Answer one request. Raises CloseConnectionError."""
        try:
            head, position = decode_request_header(frame)
        except DecodeError as error:
            raise CloseConnectionError(f"not a Kafka request: {error}") from error
        key, version = head.api_key, head.api_version
        entry = self._registry.find(key)
        if entry is None or not entry.min <= version <= entry.max:
            if key != API_VERSIONS or entry is None:
                raise CloseConnectionError(f"API key {key} version {version} is not served here")
            # KIP-511: parse nothing past the header and answer in a version 0 body.
            return encode_response(unsupported_version(self._registry), 0, head.correlation_id)
        if len(frame) > LARGE and key != PRODUCE:  # a producer's bytes are records, not items
            coroutine = self._serve_large(entry, head, bytes(frame), position, connection)
            return Pending(coroutine, abandoned_on_close=entry.abandoned_on_close)
        call = _Call(entry, head, _decode(entry, version, frame, position), connection)
        return self._outcome(call, self._handle(call))

    def _handle(self, call: _Call) -> Any:
        """What the handler returns: a response, what will be one, or None."""
        entry, head, request, connection, _ = call
        key = head.api_key
        self.requests[key] = self.requests.get(key, 0) + 1
        context = RequestContext(
            self._broker, head.api_version, head.client_id, connection, self._monotonic()
        )
        try:
            return entry.handler(request, context)
        except CloseConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it was, the client is told
            return self._failed(call, error)

    def _outcome(self, call: _Call, response: Any) -> Outcome:
        """What a handler has returned, or what that has come to, as the edge takes it."""
        head = call.head
        if type(response) is PlainAcks:
            return response.framed(head.correlation_id)
        if response is None:
            return None
        if isinstance(response, Deferred):
            return _Waiting(self, call, response)
        if hasattr(response, "__await__"):
            entry, coroutine = call.entry, self._finish(call, response)
            pipelined = entry.pipelined
            if isinstance(response, InOrder):
                response, pipelined = response.coroutine, False
            return Pending(coroutine, pipelined, entry.abandoned_on_close, awaits=response)
        if call.large:
            return Pending(self._encode_large(call, response), abandoned_on_close=True)
        return encode_response(response, head.api_version, head.correlation_id)

    async def _finish(self, call: _Call, response: Awaitable[Any]) -> Outcome:
        outcome = self._outcome(call, await self._awaited(call, response))
        # Here and not by the edge, which drops what it gets once the client has gone.
        return await outcome.coroutine if isinstance(outcome, Pending) else outcome

    async def _awaited(self, call: _Call, response: Awaitable[Any]) -> Any:
        try:
            return await response
        except CloseConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - see `_handle`
            return self._failed(call, error)

    async def _serve_large(
        self, entry: Entry, head: RequestHead, frame: bytes, position: int, connection: ConnectionInfo
    ) -> Outcome:
        """Serve a request with many items: a thread decodes and encodes, so that others go on (I11)."""
        request = await asyncio.to_thread(_decode_limited, entry, head.api_version, frame, position)
        call = _Call(entry, head, request, connection, large=True)
        response = self._handle(call)
        if hasattr(response, "__await__"):
            response = await self._awaited(call, response)
        if response is None or isinstance(response, Deferred):
            return self._outcome(call, response)
        return await self._encode_large(call, response)

    async def _encode_large(self, call: _Call, response: Any) -> Segments:
        head = call.head
        return await asyncio.to_thread(encode_response, response, head.api_version, head.correlation_id)

    def attempt(self, waiting: _Waiting) -> Outcome:
        """What it has come to, or itself."""
        deferred = waiting.response
        try:
            response = deferred.attempt()
        except CloseConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - see `_handle`
            response = self._failed(waiting.call, error)
        return waiting if response is deferred else self._outcome(waiting.call, response)

    def _failed(self, call: _Call, error: Exception) -> Any:
        """The answer to a request whose handler failed. Raises CloseConnectionError where there is none."""
        entry, head, request, connection, _ = call
        version = head.api_version
        self.failures[entry.key] = self.failures.get(entry.key, 0) + 1
        lost = isinstance(error, ZooKeeperError)  # no mistake: its message says it all
        # The mistake is ours, but a peer that has found it may ask for it as often as it likes.
        offences = self._broker.listeners[connection.listener].offences
        why = f"{entry.name} v{version}: {error!r}"
        level = logging.WARNING if lost else logging.ERROR
        offences.say("handler failed", connection, why, level=level, error=None if lost else error)
        answer = None
        if isinstance(request, PlainProduce):
            request = request.to_request()
        with contextlib.suppress(EncodeError):
            answer = error_answer(request, version, _code_of(error))
            if answer is not None and getattr(request, "acks", None) != 0:
                encode(answer, version)  # a shape that cannot be sent must not be tried later
                return answer
        raise CloseConnectionError(f"{entry.name} v{version} failed inside the broker: {error!r}") from error


class _Waiting(Deferred):
    """A handler's deferred response, as the edge waits for it."""

    __slots__ = ("_dispatcher", "call", "response")

    def __init__(self, dispatcher: Dispatcher, call: _Call, response: Deferred) -> None:
        self._dispatcher = dispatcher
        self.call = call
        self.response = response

    def begin(self, wake: Callable[[], None]) -> None:
        self.response.begin(wake)

    def attempt(self) -> Outcome:
        return self._dispatcher.attempt(self)

    def cancel(self) -> None:
        self.response.cancel()


def _code_of(error: Exception) -> ErrorCode:
    """A ZooKeeper session that was lost on the way leaves open what was done: clients may try again."""
    lost = isinstance(error, ZooKeeperError)
    return ErrorCode.REQUEST_TIMED_OUT if lost else ErrorCode.UNKNOWN_SERVER_ERROR


def _decode(entry: Entry, version: int, frame: memoryview | bytes, position: int) -> Any:
    try:
        # What is left over is not looked at, as in Kafka: librdkafka leaves 3 bytes in "all topics" of
        # Metadata v9+, librdkafka 2.0 leaves one in ListGroups v4.
        if entry.decode is not None:
            return entry.decode(version, memoryview(frame), position)
        request, _ = decode_from(entry.request, version, frame, position)
    except DecodeError as error:
        raise CloseConnectionError(f"{entry.name} v{version} request does not decode: {error}") from error
    return request


def _decode_limited(entry: Entry, version: int, frame: bytes, position: int) -> Any:
    request = _decode(entry, version, frame, position)
    count = count_items(request)
    if count > entry.max_items:
        raise CloseConnectionError(
            f"{entry.name} v{version} asks for {count} things at once, at most {entry.max_items} are allowed"
        )
    return request
