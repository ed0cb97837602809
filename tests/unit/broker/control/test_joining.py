"""A start that no controller takes in ends, and says why."""

from collections.abc import AsyncIterator

import pytest

from broker.clock import SystemClock
from broker.config import Endpoint, load
from broker.control import paths
from broker.control.plane import ControlPlane, NoController
from broker.control.zookeeper import ZooKeeper

HERE = (Endpoint("PLAINTEXT", "127.0.0.1", 1, "PLAINTEXT"),)

pytestmark = pytest.mark.cluster


@pytest.fixture
async def plane(zookeeper: str) -> AsyncIterator[ControlPlane]:
    config = load({"broker.id": "7", "zookeeper.connect": zookeeper, "zookeeper.session.timeout.ms": "6000"})
    made = await ControlPlane.open(config, SystemClock(), known_broker_id=None)
    yield made
    await made.close()


@pytest.fixture
async def other(zookeeper: str) -> AsyncIterator[ZooKeeper]:
    client = await ZooKeeper.connect(zookeeper, session_timeout_ms=6000, wait_ms=10_000)
    yield client
    await client.close()


async def test_a_controller_that_never_answers(plane: ControlPlane, other: ZooKeeper) -> None:
    await other.create(paths.CONTROLLER, b'{"version":1,"brokerid":99}', ephemeral=True)
    with pytest.raises(NoController, match=r"broker 7 is registered, but no controller .*brokerid.:99"):
        await plane.join(HERE, wait_s=0.5)


async def test_a_controller_that_fails_itself(plane: ControlPlane, other: ZooKeeper) -> None:
    await other.put(paths.CONTROLLER_EPOCH, b"not a number")
    with pytest.raises(NoController, match=r"as controller it fails itself .*not a number"):
        await plane.join(HERE, wait_s=0.5)
