"""What a broker costs while nothing happens: starting, connections and partitions that are idle, metadata.

Memory of many is the growth of the process divided by their number. Each runs on a broker of its own, so
that one does not find the other's memory warm.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient

from bench.brokers.limits import RowFailed
from bench.brokers.sides import Side, broker, zookeeper

KB = 1000.0
_IDLE_TOPICS = 10
_API_VERSIONS = bytes.fromhex("0000000a00120000000000 01ffff".replace(" ", ""))


def settled_mb(side: Side) -> float:
    """Resident memory once it has stopped growing."""
    last = side.resident_mb()
    for _ in range(20):
        time.sleep(0.5)
        now = side.resident_mb()
        if abs(now - last) < 0.2:
            return now
        last = now
    return last


def idle_connections(side: Side, count: int) -> dict[str, float | None]:
    """KB for each of `count` connections that have asked one thing and then stay quiet."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before = settled_mb(side)
    with contextlib.ExitStack() as held:
        for number in range(count):
            # A client address gives about 28,000 ports; several of them keep clear of that.
            sock = held.enter_context(socket.socket())
            sock.bind((f"127.0.0.{2 + number % 8}", 0))
            sock.connect(("127.0.0.1", side.port))
            sock.settimeout(30)
            sock.sendall(_API_VERSIONS)
            if len(sock.recv(4)) != 4:
                raise RowFailed(f"connection {number} of {count} was closed")
        time.sleep(12)  # the broker takes idle buffers back after ten seconds
        after = settled_mb(side)
    return {"kb_each": (after - before) * 1e6 / KB / count, "count": float(count)}


def idle_partitions(side: Side, count: int) -> dict[str, float | None]:
    """KB for each of `count` empty partitions."""
    before = settled_mb(side)
    for _ in range(_IDLE_TOPICS):
        side.topic(count // _IDLE_TOPICS)
    return {"kb_each": (settled_mb(side) - before) * 1e6 / KB / count, "count": float(count)}


def many_partitions(directory: Path, count: int) -> dict[str, float | None]:
    """Our start with `count` partitions, after a clean stop and after SIGKILL, and Metadata for all of them.

    The metadata figure is the broker's CPU per request: the time that its event loop is taken.
    """
    found: dict[str, float | None] = {"count": float(count)}
    with zookeeper(directory / "zookeeper") as address:
        with broker(directory / "data", address) as side:
            for _ in range(_IDLE_TOPICS):
                side.topic(count // _IDLE_TOPICS)
            found["metadata_ms"] = metadata_ms(side)
        with broker(directory / "data", address) as side:
            found["clean_start_s"] = side.start_s
            os.kill(side.pid, signal.SIGKILL)
        with broker(directory / "data", address) as side:
            found["start_after_kill_s"] = side.start_s
    return found


def metadata_ms(side: Side, repeat: int = 50) -> float:
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    admin.list_topics(timeout=60)
    before = side.cpu_s()
    for _ in range(repeat):
        admin.list_topics(timeout=60)
    return (side.cpu_s() - before) / repeat * 1000
