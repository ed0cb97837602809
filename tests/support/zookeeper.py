"""A real ZooKeeper server for tests: one per test session, and a chroot of its own for each test."""

import itertools
import os
from pathlib import Path

from broker.control.embedded_zookeeper import EmbeddedZooKeeper

_numbers = itertools.count(1)


def start_zookeeper(data_dir: Path, *, port: int = 0) -> EmbeddedZooKeeper:
    """A running server; the caller stops it. Its log is not forced to disk, which tests need not wait for."""
    return EmbeddedZooKeeper(data_dir, port=port, tick_ms=500, fsync=False).start()


def fresh_chroot(server: EmbeddedZooKeeper) -> str:
    """`zookeeper.connect` value that nobody else uses: server address and an unused chroot."""
    return f"{server.connect}/test-{os.getpid()}-{next(_numbers)}"
