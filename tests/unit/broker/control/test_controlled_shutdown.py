"""A stopping broker asks whoever is the controller, and asks again where that may help."""

import asyncio
import dataclasses
import time

import pytest

from broker.config import BrokerConfig
from broker.control import controlled_shutdown
from broker.control.controlled_shutdown import ControlledShutdown
from broker.control.controller_store import ControllerMoved
from broker.control.metadata_cache import BrokerEndpoint, BrokerInfo, MetadataCache, PartitionInfo, TopicInfo
from protocol.types import ZERO_UUID, TopicPartition

CONFIG = dataclasses.replace(BrokerConfig(), broker_id=1, controlled_shutdown_retry_backoff_ms=30_000)
LONG_S = 40
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

    async def leave(self, broker_id: int, broker_epoch: int = -1) -> list[TopicPartition]:
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


async def test_followers_that_come_one_after_the_other_are_no_tries_in_vain() -> None:
    """Thirty followers join within a second: Kafka's three tries are not used up by the first three."""
    metadata, count = cluster(1, 2), 30
    partitions = metadata.topics["t"].partitions
    partitions.update({each: PartitionInfo(each, 1, 0, (1, 2), (1,), ()) for each in range(count)})
    asked = 0

    class Takes(Controller):
        async def leave(self, broker_id: int, broker_epoch: int = -1) -> list[TopicPartition]:
            nonlocal asked
            asked += 1
            for each, known in partitions.items():
                if 2 in known.isr:
                    partitions[each] = known._replace(leader=2, isr=(2,))
            return [TopicPartition("t", each) for each, known in partitions.items() if known.leader == 1]

    waiting = asyncio.create_task(
        ControlledShutdown(CONFIG, metadata, Takes(), lambda: True).hand_over(LONG_S)
    )
    for each in range(count):
        await asyncio.sleep(0.03)
        assert not waiting.done()
        partitions[each] = partitions[each]._replace(isr=(1, 2))
        metadata._changed()
    await waiting
    assert {known.leader for known in partitions.values()} == {2}
    assert asked < count / 2  # those that came together were one try


async def test_tries_without_progress_are_counted() -> None:
    config = dataclasses.replace(CONFIG, controlled_shutdown_retry_backoff_ms=10)
    controller = Controller(*[[ALONE]] * 5)
    await ControlledShutdown(config, cluster(1, 2), controller, lambda: True).hand_over(LONG_S)
    assert len(controller.answers) == 2


async def test_a_moment_without_zookeeper_is_waited_for_by_the_controller() -> None:
    controller, looks = Controller([]), iter([False] * 5)
    stopping = ControlledShutdown(CONFIG, cluster(1, 2), controller, lambda: next(looks, True))
    await stopping.hand_over(LONG_S)
    assert not controller.answers


async def test_another_controller_is_asked_without_a_zookeeper_connection_of_ones_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    controller = Controller()
    controller.active = False
    stopping = ControlledShutdown(CONFIG, cluster(1, 2), controller, lambda: False)

    async def answer() -> list[TopicPartition]:
        asked.append(1)
        return []

    monkeypatch.setattr(stopping, "_ask", answer)
    await stopping.hand_over(LONG_S)
    assert asked


async def test_a_controller_that_stands_still_is_not_waited_for_once_another_reigns() -> None:
    connections: list[asyncio.StreamWriter] = []

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    metadata, controller = cluster(1, 2), Controller([])
    place = BrokerEndpoint("127.0.0.1", server.sockets[0].getsockname()[1], 0)
    metadata.brokers[2] = BrokerInfo(2, None, {CONFIG.inter_broker_listener: place})
    metadata.controller_id, controller.active = 2, False
    waiting = asyncio.create_task(
        ControlledShutdown(CONFIG, metadata, controller, lambda: True).hand_over(LONG_S)
    )
    while not connections:
        await asyncio.sleep(0.01)
    metadata.controller_id, controller.active = 1, True
    metadata._changed()
    begun = time.monotonic()
    await waiting
    assert not controller.answers
    assert time.monotonic() - begun < LONG_S / 2
    connections[0].close()
    server.close()
    await server.wait_closed()


async def test_it_ends_without_zookeeper_and_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controlled_shutdown, "_WITHOUT_ZOOKEEPER_S", 0.2)
    controller = Controller([])
    await ControlledShutdown(CONFIG, cluster(1, 2), controller, lambda: False).hand_over(20)
    await ControlledShutdown(CONFIG, cluster(), controller, lambda: True).hand_over(20)
    assert len(controller.answers) == 1
    silent = Controller(ControllerMoved("gone"))
    begun = time.monotonic()
    await ControlledShutdown(CONFIG, cluster(1, 2), silent, lambda: True).hand_over(0.2)
    assert time.monotonic() - begun < 15
