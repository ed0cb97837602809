"""What several modules of these tests use: a local S3 API, an empty bucket, clusters and their clients."""

from collections.abc import AsyncIterator, Iterator

import pytest

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from protocol.client import ClusterClient
from tests.cluster.links import Pair, two_clusters
from tests.cluster.vault import Vault, new_vault
from tests.support.broker import BrokerProcess
from tests.support.group_member import GroupMember
from tests.support.s3 import S3Server
from tests.support.zookeeper import fresh_chroot


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def vault(s3: S3Server) -> Vault:
    return new_vault(s3)


@pytest.fixture(scope="module")
def target(
    zookeeper_server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """Another cluster of one broker, whose defaults differ."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("target"),
        fresh_chroot(zookeeper_server),
        1,
        settings={"log.retention.ms": "3600000", "num.partitions": "4"},
    )
    process.start()
    yield process
    process.kill()


@pytest.fixture
async def here(broker: BrokerProcess) -> AsyncIterator[ClusterClient]:
    async with ClusterClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
async def there(target: BrokerProcess) -> AsyncIterator[ClusterClient]:
    async with ClusterClient(target.bootstrap) as client:
        yield client


@pytest.fixture(scope="module")
def pair(
    request: pytest.FixtureRequest,
    zookeeper_server: EmbeddedZooKeeper,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    """Two clusters of one broker of ours; the source is another one where a module is marked `BOTH_SOURCES`.
    Modules with other sides have their own."""
    source = getattr(request, "param", "isthmus")
    with two_clusters(source, zookeeper_server, tmp_path_factory.mktemp("pair")) as pair:
        yield pair


@pytest.fixture
async def clients(pair: Pair) -> AsyncIterator[tuple[ClusterClient, ClusterClient]]:
    """Of both sides of the module's `pair`: east, west."""
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        yield east, west


@pytest.fixture
def members() -> Iterator[list[GroupMember]]:
    """Whoever a test puts in here is stopped at its end."""
    started: list[GroupMember] = []
    yield started
    for member in started:
        member.stop()
