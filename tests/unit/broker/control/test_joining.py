"""A start that no controller takes in ends, and says why."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.clock import SystemClock
from broker.config import Endpoint, load
from broker.control import paths
from broker.control.plane import ControlPlane, NoController
from broker.control.session_file import SessionFile
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


async def test_a_session_that_ends_while_a_broker_starts_is_no_end(
    zookeeper: str, other: ZooKeeper, tmp_path: Path
) -> None:
    """Whichever step it ends in: settings, features, the topics' settings, the registration."""
    config = load({"broker.id": "8", "zookeeper.connect": zookeeper, "zookeeper.session.timeout.ms": "6000"})
    plane = await ControlPlane.open(config, SystemClock(), known_broker_id=None)
    ended = 0

    async def end() -> None:
        nonlocal ended
        victim = plane.zookeeper
        await ZooKeeper.end_session(zookeeper, victim.session_id, victim.session_password)
        ended += 1

    steps = (
        lambda: plane.run_record([str(tmp_path)]).outdated(clean=True),
        lambda: plane.replace_session(SessionFile(str(tmp_path))),
        lambda: plane.load_settings(["a", "b"]),
        lambda: plane.join(HERE, wait_s=0.5),
    )
    try:
        for step in steps:
            ending = asyncio.create_task(end())
            await asyncio.sleep(0)
            with contextlib.suppress(NoController):  # nothing listens at that address
                await step()
            await ending
        await plane.zookeeper.wait_connected()
        assert ended == len(steps)
        async with asyncio.timeout(30):
            while not await other.exists(paths.broker(8)):
                await asyncio.sleep(0.05)
    finally:
        await plane.close()
