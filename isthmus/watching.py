"""A command that watches a cluster until SIGTERM or Ctrl-C and serves what it sees to Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.output import say
from isthmus.ports import cannot_listen

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Port = Annotated[
    int | None,
    typer.Option(help="serve Prometheus metrics here (0: a free port) until Ctrl-C", min=0, max=65535),
]


async def serve(
    what: str,
    registry: CollectorRegistry,
    port: int,
    watch: Callable[[asyncio.Event], Coroutine[Any, Any, object]],
) -> None:
    """Prints a line when `registry` is served on 127.0.0.1 (port 0: a free one), then runs `watch(stop)`."""
    from prometheus_client import start_http_server

    from isthmus.logs import log_to_stderr

    log_to_stderr()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        server, _ = start_http_server(port, "127.0.0.1", registry)
    except OSError as error:
        cannot_listen(f"port {port} cannot be used", error, "--port")
    say(f"isthmus {what} ready: http://127.0.0.1:{server.server_port}/metrics")
    watching = asyncio.create_task(watch(stop))
    watching.add_done_callback(lambda _: stop.set())
    await stop.wait()
    watching.cancel()  # it may wait for a cluster that does not answer
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    server.shutdown()
    server.server_close()
