"""Fixtures that every test may use: real ZooKeeper, and real broker processes (see tests/support)."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest
from hypothesis import HealthCheck, settings

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from tests.support.broker import BrokerProcess, Cluster
from tests.support.sides import Settings, Side, StartSide, side_of
from tests.support.three_brokers import StartThree, three_brokers
from tests.support.zookeeper import fresh_chroot, start_zookeeper

# How long an example takes says something about the machine, not about the code.
settings.register_profile("isthmus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("isthmus")

# A script starts its background jobs with Ctrl-C switched off, and what tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture(scope="module")
def broker(
    zookeeper_server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A cluster of one running broker, shared by the tests of a module: use topics of your own."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), fresh_chroot(zookeeper_server), 1)
    process.start()
    yield process
    process.kill()


@pytest.fixture(scope="session")
def start_side(zookeeper_server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> StartSide:
    """`start_side(kind, name, settings)`: a context with a running broker, ours or Apache Kafka."""

    def start(kind: str, name: str, settings: Settings) -> AbstractContextManager[Side]:
        chroot = partial(fresh_chroot, zookeeper_server)
        return side_of(kind, name, settings, chroot, tmp_path_factory.mktemp(name))

    return start


@pytest.fixture
def cluster(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Cluster]]:
    """`cluster(3)` starts brokers 1 to 3; `cluster(0)` gives an empty cluster to add brokers to."""
    made: list[Cluster] = []

    def make(brokers: int) -> Cluster:
        new = Cluster(tmp_path_factory.mktemp("cluster"), zookeeper)
        made.append(new)
        for number in range(1, brokers + 1):
            new.add(number)
        return new.start()

    yield make
    for each in made:
        each.close()


@pytest.fixture
def start_three(cluster: Callable[[int], Cluster]) -> StartThree:
    """`start_three(settings, arguments)`: three running brokers in racks r1 to r3."""
    return lambda settings=None, arguments=(): three_brokers(cluster(0), settings, arguments)
