"""`isthmus zookeeper`: one ZooKeeper server in the foreground, alone or of an ensemble."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.output import USAGE, fail, note, say

if TYPE_CHECKING:
    from broker.control.embedded_zookeeper import EmbeddedZooKeeper
    from broker.control.zookeeper_ensemble import Ensemble

_QUORUM_S = 15.0
_LOOK_S = 0.2


def zookeeper(
    data: Annotated[Path, typer.Option(help="data directory", show_default=False)],
    port: Annotated[int, typer.Option(help="client port; 0 takes a free one", min=0, max=65535)] = 2181,
    heap_mb: Annotated[int, typer.Option(help="Java heap in MiB")] = 96,
    own_id: Annotated[
        int | None, typer.Option("--id", help="which server of its ensemble this is", min=1, max=255)
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(help="a server of the ensemble, ID=HOST:QUORUM_PORT:ELECTION_PORT; repeat"),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="servers of one group of hierarchical quorums, 1:2:3; repeat")
    ] = None,
    weight: Annotated[
        list[str] | None, typer.Option(help="weight of a server in its group, ID=WEIGHT; repeat")
    ] = None,
) -> None:
    """Run one ZooKeeper server from the jars that PySpark bundles, until SIGTERM or Ctrl-C.

    For trying things out on one machine; in production point the brokers at your own ensemble. With --id and
    --server it is one of an ensemble: run the same command with another --id, --port and --data for each.

    Example: isthmus zookeeper --port 2181 --data build/zookeeper

    Example: isthmus zookeeper --port 2181 --data build/zookeeper-1 --id 1 --server 1=127.0.0.1:2888:3888
    --server 2=127.0.0.1:2889:3889 --server 3=127.0.0.1:2890:3890
    """
    from broker.control.embedded_zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError
    from broker.control.java import JavaError

    ensemble = _ensemble(own_id, server or [], group or [], weight or [])
    stop = threading.Event()
    running = EmbeddedZooKeeper(data, port=port, heap_mb=heap_mb, ensemble=ensemble)
    try:
        running.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        _wait_for_quorum(running, stop)
        role = f", {running.mode or 'no quorum yet'}" if ensemble is not None else ""
        say(f"isthmus zookeeper ready: {running.connect}, data in {data}{role}")
        while not stop.wait(_LOOK_S):
            if not running.running():
                fail(f"ZooKeeper on {running.connect} ended by itself; its log: {running.log_file}")
    except (EmbeddedZooKeeperError, JavaError) as error:
        fail(str(error))
    finally:
        running.stop()


def _ensemble(
    own_id: int | None, servers: list[str], groups: list[str], weights: list[str]
) -> Ensemble | None:
    from broker.control.zookeeper_ensemble import Ensemble, EnsembleError

    if own_id is None:
        if servers or groups or weights:
            fail("which of the servers is this one? say it with --id", USAGE)
        return None
    try:
        return Ensemble.parse(own_id, servers, groups, weights)
    except EnsembleError as error:
        fail(str(error), USAGE)


def _wait_for_quorum(server: EmbeddedZooKeeper, stop: threading.Event) -> None:
    """A moment for the others to come; without them this server listens, and serves when they are there."""
    deadline = time.monotonic() + _QUORUM_S
    while not server.serving() and server.running() and not stop.is_set():
        if time.monotonic() > deadline:
            note(f"ZooKeeper on {server.connect} waits for the other servers of its ensemble")
            return
        stop.wait(_LOOK_S)
