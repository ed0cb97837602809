"""From a frame to an answer: header, registry look-up, decode, handler, encode.

Owns the rules of what ends a connection. A frame that does not decode, an unknown key or version (except
ApiVersions, KIP-511) and an acks=0 request that failed close the connection, as Kafka does; a handler's
unexpected exception does too, because no handler may answer in a shape of its own invention.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from broker.server.context import ConnectionInfo, RequestContext
from broker.server.edge import CloseConnectionError, Pending, Segments
from broker.server.handlers.api_versions import unsupported_version
from broker.server.registry import Entry, Registry
from protocol.codec import decode_from
from protocol.errors import DecodeError
from protocol.frames import decode_request_header, encode_response

if TYPE_CHECKING:
    from broker.server.app import Broker

logger = logging.getLogger("isthmus.broker")

API_VERSIONS = 18


class Dispatcher:
    """`serve` is what the edge calls with each frame. Counts requests by key for the metrics."""

    def __init__(self, broker: Broker, registry: Registry) -> None:
        self._broker = broker
        self._registry = registry
        self._monotonic = broker.clock.monotonic
        self.requests: dict[int, int] = {}
        self.failures: dict[int, int] = {}

    def serve(self, frame: memoryview, connection: ConnectionInfo) -> Segments | Pending | None:
        """Answer one request. Raises CloseConnectionError."""
        try:
            header, position = decode_request_header(frame)
        except DecodeError as error:
            raise CloseConnectionError(f"not a Kafka request: {error}") from error
        key, version = header.api_key, header.api_version
        entry = self._registry.find(key)
        if entry is None or not entry.min <= version <= entry.max:
            if key != API_VERSIONS or entry is None:
                raise CloseConnectionError(f"API key {key} version {version} is not served here")
            # KIP-511: parse nothing past the header and answer in a version 0 body.
            return encode_response(unsupported_version(self._registry), 0, header.correlation_id)
        try:
            # What is left over is not looked at, as in Kafka: librdkafka leaves 3 bytes in "all topics" of
            # Metadata v9+, librdkafka 2.0 leaves one in ListGroups v4.
            request, _ = decode_from(entry.request, version, frame, position)
        except DecodeError as error:
            raise CloseConnectionError(f"{entry.name} v{version} request does not decode: {error}") from error
        self.requests[key] = self.requests.get(key, 0) + 1
        context = RequestContext(self._broker, version, header.client_id, connection, self._monotonic())
        try:
            response = entry.handler(request, context)
        except CloseConnectionError:
            raise
        except Exception as error:
            self.failures[key] = self.failures.get(key, 0) + 1
            logger.exception("%s v%d handler failed", entry.name, version)
            raise CloseConnectionError(
                f"{entry.name} v{version} failed inside the broker: {error!r}"
            ) from error
        if response is None:
            return None
        if hasattr(response, "__await__"):
            return Pending(
                self._finish(entry, version, header.correlation_id, response),
                entry.pipelined,
                entry.abandoned_on_close,
            )
        return encode_response(response, version, header.correlation_id)

    async def _finish(
        self, entry: Entry, version: int, correlation_id: int, response: Awaitable[Any]
    ) -> Segments | None:
        try:
            message = await response
        except CloseConnectionError:
            raise
        except Exception as error:
            self.failures[entry.key] = self.failures.get(entry.key, 0) + 1
            logger.exception("%s v%d handler failed", entry.name, version)
            raise CloseConnectionError(
                f"{entry.name} v{version} failed inside the broker: {error!r}"
            ) from error
        return None if message is None else encode_response(message, version, correlation_id)
