"""Serves /metrics over HTTP in the broker's own event loop, so that a scrape sees one consistent moment.

Speaks just enough HTTP/1.1 for Prometheus and a browser: one GET, one answer, close. Must not know what the
metrics mean.
"""

import asyncio
from contextlib import suppress

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

_LONGEST_REQUEST = 8192
_REQUEST_TIMEOUT_S = 5.0


class MetricsEndpoint:
    """Open it with `open`; `port` is then the bound one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.host = ""
        self.port = 0
        self._registry = registry
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_LONGEST_REQUEST)
        self.host = host
        self.port = int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "text/plain", b"GET /metrics\n", method)
        if path not in (b"/metrics", b"/"):
            return _response("404 Not Found", "text/plain", b"GET /metrics\n", method)
        return _response("200 OK", CONTENT_TYPE_LATEST, generate_latest(self._registry), method)


def _response(status: str, kind: str, body: bytes, method: bytes) -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "\r\n",
    )
    return "\r\n".join(lines).encode() + (b"" if method == b"HEAD" else body)
