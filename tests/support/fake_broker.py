"""A broker that follows a script, to test clients: real sockets, real frames, any misbehaviour.

`FakeBroker` answers ApiVersions by itself unless the script takes it over. A script is
`async def script(peer: Peer) -> None`, called once per connection; when it returns, the connection closes.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from protocol.api import APIS, ApiKey
from protocol.codec import decode
from protocol.codec.schema import Response
from protocol.frames import decode_request_header, encode_response
from protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse


class Received(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    body: Any


class Peer:
    """One client, seen from the broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.versions = {key: (api.min, api.max) for key, api in APIS.items()}

    async def request(self, *, raw_versions: bool = False) -> Received:
        """The next request. ApiVersions is answered on the way unless `raw_versions`."""
        while True:
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            frame = await self.reader.readexactly(size)
            head, pos = decode_request_header(frame)
            body = decode(APIS[head.api_key].request, head.api_version, frame, pos)
            received = Received(head.api_key, head.api_version, head.correlation_id, body)
            if raw_versions or head.api_key != ApiKey.API_VERSIONS:
                return received
            await self.answer(received, self.offered())

    def offered(self) -> ApiVersionsResponse:
        rows = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        return ApiVersionsResponse(api_keys=rows)

    async def answer(self, to: Received, message: Response, version: int | None = None) -> None:
        await self.send(self.frame(to, message, version))

    def frame(self, to: Received, message: Response, version: int | None = None) -> bytes:
        return b"".join(
            encode_response(message, to.version if version is None else version, to.correlation_id)
        )

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


Script = Callable[[Peer], Awaitable[None]]


class FakeBroker:
    """Listens on 127.0.0.1 at a free port, or at `port` to come back where another one was."""

    def __init__(self, script: Script, *, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.failures: list[BaseException] = []
        self.connections = 0
        self.port = port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    def takes_slowly(self) -> None:
        """Has room for 256 KB that nobody has read yet; with less, TCP waits for its timers."""
        assert self._server is not None
        self._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if error is None and self.failures:
            raise self.failures[0]

    async def stop(self) -> None:
        """Closes the port and all connections."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self._script(Peer(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client left, or the test is over
        except Exception as error:
            self.failures.append(error)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)
