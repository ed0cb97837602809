"""`isthmus object-store`: moto's S3 server in the foreground."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Annotated

import typer

from isthmus.output import fail, say
from protocol.extras import missing


def object_store(
    port: Annotated[int, typer.Option(help="port; 0 takes a free one", min=0, max=65535)] = 0,
) -> None:
    """Run a local S3 API until SIGTERM or Ctrl-C. It keeps objects in memory: for trying things out only.

    Example: isthmus object-store --port 9000
    """
    if absent := missing("the local S3 API", "demo", "moto", "flask"):
        fail(absent)
    from moto.server import ThreadedMotoServer

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    server = ThreadedMotoServer("127.0.0.1", port)
    try:
        server.start()
        host, chosen = server.get_host_and_port()
    except (OSError, RuntimeError, SystemExit) as error:
        fail(f"the local S3 API cannot listen on port {port}: {error}")
    say(f"isthmus object-store ready: http://{host}:{chosen}")
    stop.wait()
    server.stop()
