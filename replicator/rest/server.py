"""Serving REST in the loop of the links: the socket, and an end in order.

Owns what uvicorn is told. Signals stay the process's own. Where it listens is known before it serves, so that
workers can say it to each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> tuple[socket.socket, str]:
    """A socket, and the URL that leads to it. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family)
    shown = socket.gethostname() if _is_any(host) else host
    shown = f"[{shown}]" if ":" in shown else shown
    return listening, f"http://{shown}:{listening.getsockname()[1]}"


def is_local(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


@contextlib.asynccontextmanager
async def serving(app: Any, listening: socket.socket) -> AsyncIterator[None]:
    """Serves while the context lasts."""
    server = _Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off"))
    task = asyncio.create_task(server.serve([listening]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
