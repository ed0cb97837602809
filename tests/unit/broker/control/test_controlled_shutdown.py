"""A stopping broker asks whoever is the controller, and asks again where that may help."""

import asyncio
import dataclasses
import time

from broker.config import BrokerConfig
from broker.control.controlled_shutdown import ControlledShutdown
from broker.control.controller_store import ControllerMoved
from broker.control.metadata_cache import BrokerInfo, MetadataCache, PartitionInfo, TopicInfo
from protocol.types import ZERO_UUID, TopicPartition

CONFIG = dataclasses.replace(BrokerConfig(), broker_id=1, controlled_shutdown_retry_backoff_ms=30_000)
ALONE = TopicPartition("t", 0)


def cluster(*brokers: int, replicas: tuple[int, ...] = (1, 2), isr: tuple[int, ...] = (1,)) -> MetadataCache:
    """As broker 1 knows it; it leads t-0."""
    cache = MetadataCache("c", 1)
    cache.brokers = {number: BrokerInfo(number, None, {}) for number in brokers}
    cache.topics["t"] = TopicInfo("t", ZERO_UUID)
    learn(cache, replicas, isr)
    return cache


def learn(cache: MetadataCache, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
    cache.topics["t"].partitions[0] = PartitionInfo(0, 1, 0, replicas, isr, ())
    cache._changed()


class Controller:
    """Reigns, and answers with these in turn."""

    active = True

    def __init__(self, *answers: list[TopicPartition] | Exception) -> None:
        self.answers = list(answers)

    async def leave(self, broker_id: int) -> list[TopicPartition]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_nothing_is_tried_again_where_nobody_else_can_take_over() -> None:
    controller = Controller([ALONE], [])
    await ControlledShutdown(CONFIG, cluster(1), controller, lambda: True).hand_over(20)
    assert len(controller.answers) == 1


async def test_a_follower_on_its_way_back_is_waited_for() -> None:
    metadata, controller = cluster(1, 2), Controller([ALONE], [])
    stopping = ControlledShutdown(CONFIG, metadata, controller, lambda: True)
    waiting = asyncio.create_task(stopping.hand_over(20))
    while len(controller.answers) == 2:
        await asyncio.sleep(0)
    learn(metadata, (1, 2), (1, 2))
    begun = time.monotonic()
    await waiting
    assert not controller.answers
    assert time.monotonic() - begun < 15  # not for the whole pause


async def test_the_next_controller_is_asked() -> None:
    metadata, controller = cluster(1, 2), Controller(ControllerMoved("not any more"), [])
    stopping = ControlledShutdown(CONFIG, metadata, controller, lambda: True)
    waiting = asyncio.create_task(stopping.hand_over(20))
    while len(controller.answers) == 2:
        await asyncio.sleep(0)
    metadata.controller_id = 2
    metadata._changed()
    await waiting
    assert not controller.answers


async def test_it_ends_without_zookeeper_and_without_an_answer() -> None:
    controller = Controller([])
    await ControlledShutdown(CONFIG, cluster(1, 2), controller, lambda: False).hand_over(20)
    await ControlledShutdown(CONFIG, cluster(), controller, lambda: True).hand_over(20)
    assert len(controller.answers) == 1
    silent = Controller(ControllerMoved("gone"))
    begun = time.monotonic()
    await ControlledShutdown(CONFIG, cluster(1, 2), silent, lambda: True).hand_over(0.2)
    assert time.monotonic() - begun < 15
