"""`isthmus broker`: one broker in the foreground."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from isthmus.logs import log_to_stderr
from isthmus.output import USAGE, fail, say


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
        str | None, typer.Option(help="HOST:PORT,HOST:PORT… or …/chroot", show_default=False)
    ] = None,
    embedded_zookeeper: Annotated[
        bool, typer.Option("--embedded-zookeeper", help="start a ZooKeeper server beside the broker")
    ] = False,
    zookeeper_port: Annotated[
        int, typer.Option(help="port of the embedded ZooKeeper; 0 takes a free one", min=0, max=65535)
    ] = 0,
    config: Annotated[Path | None, typer.Option(help="a Kafka server.properties", show_default=False)] = None,
    id_: Annotated[int | None, typer.Option("--id", help="broker.id", show_default=False)] = None,
    rack: Annotated[str | None, typer.Option(help="broker.rack", show_default=False)] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="a setting, NAME=VALUE; may be repeated", show_default=False),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="serve Prometheus metrics; 0 takes a free port", show_default=False, min=0, max=65535
        ),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error")] = "warning",
) -> None:
    """Run one broker until SIGTERM or Ctrl-C. Prints one line when it serves.

    Settings are Kafka's. Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage or settings.

    Example: isthmus broker --embedded-zookeeper --listener PLAINTEXT://127.0.0.1:9092 --data build/broker
    """
    from broker.config import ConfigError, load
    from broker.config.given import gather
    from broker.process import STAND_ALONE, Options, run

    levels = logging.getLevelNamesMapping()
    if log_level.upper() not in levels:
        fail(f"--log-level {log_level}: write debug, info, warning or error", USAGE)
    log_to_stderr(levels[log_level.upper()])
    try:
        given = gather(
            defaults=STAND_ALONE if embedded_zookeeper else {},
            file=config,
            options={
                "log.dirs": ("--data", None if data is None else str(data / "log")),
                "listeners": ("--listener", ",".join(listener or ()) or None),
                "advertised.listeners": (
                    "--advertised-listener",
                    ",".join(advertised_listener or ()) or None,
                ),
                "zookeeper.connect": ("--zookeeper", zookeeper),
                "broker.id": ("--id", None if id_ is None else str(id_)),
                "broker.rack": ("--rack", rack),
            },
            assignments=set_ or (),
        )
        if embedded_zookeeper and data is None:
            raise ConfigError(["--embedded-zookeeper: needs --data, where ZooKeeper keeps its files"])
        if embedded_zookeeper and given.properties.get("zookeeper.connect"):
            raise ConfigError(["--embedded-zookeeper: leave zookeeper.connect out, or use that ZooKeeper"])
        settings = load(given.properties, given.origins)
    except ConfigError as error:
        fail("\nisthmus: ".join(error.errors), USAGE)
    options = Options(
        embedded_zookeeper=data / "zookeeper" if embedded_zookeeper and data else None,
        zookeeper_port=zookeeper_port,
        metrics_port=metrics_port,
    )
    raise typer.Exit(run(settings, options, say))
