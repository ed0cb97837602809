"""Fixtures that every test may use: real ZooKeeper, and real broker processes (see tests/support)."""

from collections.abc import Iterator

import pytest

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from tests.support.zookeeper import fresh_chroot, start_zookeeper


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """One ZooKeeper server for the whole session. Use `zookeeper` unless the test is about the server."""
    server = start_zookeeper(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.stop()


@pytest.fixture
def zookeeper(zookeeper_server: EmbeddedZooKeeper) -> str:
    """`host:port/chroot` of a ZooKeeper tree that is empty and belongs to this test."""
    return fresh_chroot(zookeeper_server)
