"""The controller's edge over a ZooKeeper that fails at chosen moments."""

import asyncio
from collections.abc import Callable
from typing import Any

from broker.control.controller import Controller
from broker.control.controller_reads import StatesRead, TopicsRead
from broker.control.controller_store import Reign
from broker.control.nodes import TopicNode
from broker.control.zookeeper_types import SessionExpired
from protocol.types import new_topic_id


class Session:
    connected = True

    def on_session(self, callback: Callable[..., None]) -> None: ...


class Store:
    """One topic, whose deletion is asked for; the first tries to remove it lose the connection."""

    def __init__(self, failures: int) -> None:
        self.topic = {"orders": TopicNode(new_topic_id(), {0: (0,)})}
        self.asked = ["orders"]
        self.removed = asyncio.Event()
        self._failures = failures

    async def elect(self, watch: Callable[[], None]) -> Reign:
        return Reign(1, 1)  # the same one each time: the session lives

    async def brokers(self, watch: Callable[[], None]) -> dict[int, Any]:
        return {}

    async def topic_names(self, watch: Callable[[], None]) -> set[str]:
        return set(self.topic)

    async def topics(self, names: Any, watch: Callable[[str], Callable[[], None]]) -> TopicsRead:
        return TopicsRead({name: self.topic[name] for name in names}, set())

    async def states(self, partitions: Any) -> StatesRead:
        return StatesRead({}, {}, set())

    async def deletions(self, watch: Callable[[], None]) -> list[str]:
        return self.asked

    async def log_dir_events(self, watch: Callable[[], None]) -> dict[str, int]:
        return {}

    async def drop(self, reign: Reign, nodes: Any) -> None: ...

    async def remove_topic(self, reign: Reign, name: str) -> None:
        if self._failures:
            self._failures -= 1
            raise SessionExpired("connection lost while writing")
        self.topic.clear()
        self.asked = []
        self.removed.set()

    async def resign(self) -> None: ...


async def test_a_deletion_that_lost_its_connection_is_begun_again_in_the_same_reign() -> None:
    store = Store(failures=2)
    controller = Controller(Session(), store, 0, listener="PLAINTEXT", socket_timeout_s=1)  # type: ignore[arg-type]
    controller.start()
    try:
        async with asyncio.timeout(10):
            await store.removed.wait()
    finally:
        await controller.close()
