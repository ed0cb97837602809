"""`isthmus broker`: one broker in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def broker(
    data: Annotated[
        Path | None, typer.Option(help="data directory (log.dirs = DATA/log)", show_default=False)
    ] = None,
    listener: Annotated[
        list[str] | None,
        typer.Option(help="where to listen, NAME://host:port; may be repeated", show_default=False),
    ] = None,
    advertised_listener: Annotated[
        list[str] | None,
        typer.Option(help="what to tell clients, if it is another address", show_default=False),
    ] = None,
    zookeeper: Annotated[
        str | None, typer.Option(help="HOST:PORT[,HOST:PORT…][/chroot]", show_default=False)
    ] = None,
    embedded_zookeeper: Annotated[
        bool, typer.Option("--embedded-zookeeper", help="start a ZooKeeper server beside the broker")
    ] = False,
    zookeeper_port: Annotated[
        int, typer.Option(help="port of the embedded ZooKeeper; 0 takes a free one")
    ] = 0,
    config: Annotated[Path | None, typer.Option(help="a Kafka server.properties", show_default=False)] = None,
    id_: Annotated[int | None, typer.Option("--id", help="broker.id", show_default=False)] = None,
    rack: Annotated[str | None, typer.Option(help="broker.rack", show_default=False)] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="a setting, NAME=VALUE; may be repeated", show_default=False),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="serve Prometheus metrics; 0 takes a free port", show_default=False)
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error")] = "warning",
) -> None:
    """Run one broker until SIGTERM or Ctrl-C. Prints one line when it serves.

    Settings are Kafka's. Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage or settings.

    Example: isthmus broker --embedded-zookeeper --listener PLAINTEXT://127.0.0.1:9092 --data build/broker
    """
