"""Serving REST in the loop of the links: the socket, and an end in order.

Owns what uvicorn is told. Signals stay the process's own. Where it listens is known before it serves, so that
workers can say it to each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl as tls
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import uvicorn

from protocol.client.tls import PEM, TlsSettings, server_context

_END_S: Final = 2
"""For answers that are on their way; a client that stopped halfway does not keep the process."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Config(uvicorn.Config):
    """With a context of TLS as it is, where uvicorn would make its own out of files."""

    def __init__(self, app: Any, context: tls.SSLContext | None) -> None:
        super().__init__(
            app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=_END_S
        )
        self._context = context

    def load(self) -> None:
        super().load()
        self.ssl = self._context


def tls_context(keystore: Path, client_ca: Path | None = None) -> tls.SSLContext:
    """For HTTPS: `keystore` is a key and its certificate, and only clients that `client_ca` has signed are
    let in, where it is given; both in PEM. Raises TlsSettingsError."""
    trusted = str(client_ca) if client_ca is not None else None
    settings = TlsSettings(
        keystore_type=PEM,
        keystore_location=str(keystore),
        truststore_type=PEM,
        truststore_location=trusted,
    )
    return server_context(settings, "none" if client_ca is None else "required")


def listen(host: str, port: int, scheme: str = "http") -> tuple[socket.socket, str]:
    """A socket, and the URL that leads to it. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family)
    shown = socket.gethostname() if _is_any(host) else host
    shown = f"[{shown}]" if ":" in shown else shown
    return listening, f"{scheme}://{shown}:{listening.getsockname()[1]}"


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


@contextlib.asynccontextmanager
async def serving(
    app: Any, listening: socket.socket, context: tls.SSLContext | None = None
) -> AsyncIterator[None]:
    """Serves while the context lasts; with `context` over TLS only."""
    server = _Server(_Config(app, context))
    task = asyncio.create_task(server.serve([listening]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
