"""`isthmus zookeeper`: one ZooKeeper server in the foreground."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from isthmus.output import fail, say


def zookeeper(
    data: Annotated[Path, typer.Option(help="data directory", show_default=False)],
    port: Annotated[int, typer.Option(help="client port; 0 takes a free one", min=0, max=65535)] = 2181,
    heap_mb: Annotated[int, typer.Option(help="Java heap in MiB")] = 96,
) -> None:
    """Run one ZooKeeper server from the jars that PySpark bundles, until SIGTERM or Ctrl-C.

    For trying things out on one machine; in production point the brokers at your own ensemble.

    Example: isthmus zookeeper --port 2181 --data build/zookeeper
    """
    from broker.control.embedded_zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError
    from broker.control.java import JavaError

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    server = EmbeddedZooKeeper(data, port=port, heap_mb=heap_mb)
    try:
        server.start()
    except (EmbeddedZooKeeperError, JavaError) as error:
        fail(str(error))
    try:
        say(f"isthmus zookeeper ready: {server.connect}, data in {data}")
        while not stop.wait(0.2):
            if not server.running():
                fail(f"ZooKeeper on {server.connect} ended by itself; its log: {server.log_file}")
    finally:
        server.stop()
