"""Real controllers over a ZooKeeper in memory and three brokers that do what they are told.

A broker here is what it knows and hosts. Orders travel through the codec, are refused by an old epoch, and
may be what an interruption waits for. Leaders bring followers into the ISR as soon as these host the
partition. The controllers run on brokers 8 and 9, which hold nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from broker.clock import SystemClock
from broker.config import Endpoint
from broker.control import paths
from broker.control.controller import Controller
from broker.control.controller_jobs import Work
from broker.control.controller_store import ControllerMoved, ControllerStore
from broker.control.metadata_cache import FULL, MetadataCache
from broker.control.nodes import BrokerNode, PartitionState, TopicNode
from broker.control.orders import LiveBroker, Order
from broker.control.proposed_isr import IsrProposal
from broker.control.zookeeper_types import Set
from protocol.codec import decode, dumps
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.leader_and_isr_request import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from protocol.messages.leader_and_isr_response import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from protocol.messages.stop_replica_request import StopReplicaRequest
from protocol.messages.stop_replica_response import StopReplicaResponse
from protocol.messages.update_metadata_request import UpdateMetadataRequest
from protocol.messages.update_metadata_response import UpdateMetadataResponse
from protocol.types import TopicPartition, new_topic_id
from tests.support.simulated_zookeeper import Interruption, Session, Tree

CONTROLLERS = (8, 9)
BROKERS = (1, 2, 3)
_CALM = 100
"""Turns of the event loop without anything new: more than any job here waits for in memory."""


class Hosted(NamedTuple):
    leader: int
    leader_epoch: int
    topic_id: bytes


class Broker:
    """A process of a broker, from its start to its death."""

    def __init__(self) -> None:
        self.cache = MetadataCache()
        self.hosted: dict[TopicPartition, Hosted] = {}

    def obey(self, request: Any) -> Any:
        """The answer."""
        stale = request.controller_epoch < self.cache.controller_epoch
        code = ErrorCode.STALE_CONTROLLER_EPOCH if stale else ErrorCode.NONE
        if isinstance(request, UpdateMetadataRequest):
            if not stale:
                self.cache.update(request)
            return UpdateMetadataResponse(error_code=code)
        if isinstance(request, StopReplicaRequest):
            for topic in request.topic_states if not stale else ():
                for each in topic.partition_states:
                    self.hosted.pop(TopicPartition(topic.topic_name, each.partition_index), None)
            return StopReplicaResponse(error_code=code)
        return LeaderAndIsrResponse(error_code=code) if stale else self._lead(request)

    def _lead(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        self.cache.controller_epoch = request.controller_epoch
        if request.type == FULL:
            told = {topic.topic_name: topic.partition_states for topic in request.topic_states}
            for key in list(self.hosted):
                indexes = [each.partition_index for each in told.get(key.topic, ())]
                if key.partition not in indexes and told.get(key.topic) != []:
                    del self.hosted[key]
        answers = []
        for topic in request.topic_states:
            errors = [
                LeaderAndIsrPartitionError(partition_index=i.partition_index) for i in topic.partition_states
            ]
            answers.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
            for state in topic.partition_states:
                self._take(topic.topic_name, topic.topic_id, state)
        return LeaderAndIsrResponse(topics=answers)

    def _take(self, name: str, topic_id: bytes, state: LeaderAndIsrPartitionState) -> None:
        key = TopicPartition(name, state.partition_index)
        known = self.hosted.get(key)
        if known is None or known.topic_id != topic_id or state.leader_epoch >= known.leader_epoch:
            self.hosted[key] = Hosted(state.leader, state.leader_epoch, topic_id)


class OrdersInMemory:
    """`Channels` of one controller: orders arrive one by one, in a later turn."""

    def __init__(self, world: World, session: Session) -> None:
        self._world = world
        self._session = session
        self._live: dict[int, LiveBroker] = {}
        self._waiting: set[asyncio.Future[Any]] = set()

    async def connect(self, brokers: Mapping[int, LiveBroker]) -> None:
        self._live = dict(brokers)

    def send(self, order: Order) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)
        asyncio.get_running_loop().call_soon(self._arrive, order, self._live[order.broker_id], answer)
        return answer

    async def close(self) -> None:
        for answer in self._waiting:
            answer.cancel()
        self._waiting.clear()

    def _arrive(self, order: Order, meant: LiveBroker, answer: asyncio.Future[Any]) -> None:
        number, request = order.broker_id, order.request
        if self._session.dead or answer.done() or self._live.get(number) != meant:
            return
        fault = self._world.interruption.comes(f"{type(request).__name__} to {number}")
        if fault is not None and fault.kills and not fault.done:
            self._session.kill()
            return
        version = request.VALID_VERSIONS[1]
        received = decode(
            type(request), version, b"".join(order.encoded(version) or [dumps(request, version)])
        )
        broker = self._world.brokers.get(number)
        self._world.obeyed += 1
        response = None if broker is None else broker.obey(received)
        if fault is not None and fault.kills:
            self._session.kill()
        elif response is not None:
            self._waiting.discard(answer)
            answer.set_result(response)


class World:
    """Use `async with`: two controllers, brokers 1 to 3, one topic `base` with all replicas in sync."""

    def __init__(self, interruption: Interruption) -> None:
        self.interruption = interruption
        self.tree = Tree()
        self.brokers: dict[int, Broker] = {}
        self.controllers: list[Controller] = []
        self.sessions: list[Session] = []
        self.client = Session(self.tree, 1)
        self.obeyed = 0
        """Orders that have arrived."""
        self._proposals: dict[int, asyncio.Task[None]] = {}

    async def __aenter__(self) -> World:
        for path in ("/controller_epoch", "/brokers", "/config", "/admin", *paths.PERSISTENT):
            await self.client.create(path, b"0" if path == paths.CONTROLLER_EPOCH else b"")
        for number in BROKERS:
            await self.register(number)
        for number in CONTROLLERS:
            session = Session(self.tree, number, self.interruption)
            controller = Controller(
                session,  # type: ignore[arg-type]
                ControllerStore(session, number, SystemClock()),  # type: ignore[arg-type]
                number,
                listener="PLAINTEXT",
                socket_timeout_s=1,
                channels=OrdersInMemory(self, session),  # type: ignore[arg-type]
            )
            self.controllers.append(controller)
            self.sessions.append(session)
            controller.start()
            await self.until(lambda: any(each.active for each in self.controllers))
        await self.create("base", {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
        await self.settled()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.interruption.counting = False
        for task in self._proposals.values():
            task.cancel()
        await asyncio.gather(*self._proposals.values(), return_exceptions=True)
        for controller in self.controllers:
            await controller.close()

    # -- what happens

    async def register(self, number: int) -> None:
        """A broker starts, and knows nothing."""
        self.brokers[number] = Broker()
        endpoint = Endpoint("PLAINTEXT", f"host{number}", 9092, "PLAINTEXT")
        await self.client.create(paths.broker(number), BrokerNode((endpoint,)).encode(), ephemeral=True)

    async def die(self, number: int) -> None:
        del self.brokers[number]
        await self.client.delete(paths.broker(number))

    async def create(self, name: str, assignment: Mapping[int, tuple[int, ...]]) -> None:
        await self.client.create(paths.topic(name), TopicNode(new_topic_id(), assignment).encode())

    async def grow(self, name: str, assignment: Mapping[int, tuple[int, ...]]) -> None:
        node = self.topic(name)
        more = TopicNode(node.topic_id, {**node.assignment, **assignment})
        await self.client.transaction([Set(paths.topic(name), more.encode())])

    async def delete(self, name: str) -> None:
        await self.client.create(paths.delete_topic(name))

    async def ask(self, job: Callable[[Work], Awaitable[Any]]) -> Any:
        """As a client does: whoever reigns is asked until somebody has answered."""
        while True:
            for controller, session in zip(self.controllers, self.sessions, strict=True):
                if session.dead or not controller.active:
                    continue
                answer = asyncio.ensure_future(controller.ask(job))
                over = asyncio.ensure_future(session.over.wait())
                await asyncio.wait({answer, over}, return_when=asyncio.FIRST_COMPLETED)
                over.cancel()
                if not answer.done():
                    answer.cancel()
                    continue
                try:
                    return answer.result()
                except (ControllerMoved, KafkaError):
                    continue
            await asyncio.sleep(0)

    # -- what is

    def topic(self, name: str) -> TopicNode:
        return TopicNode.decode(self.tree.nodes[paths.topic(name)].data)

    def topics(self) -> dict[str, TopicNode]:
        return {name: self.topic(name) for name in self.tree.children(paths.TOPICS)}

    def state(self, partition: TopicPartition) -> PartitionState | None:
        node = self.tree.nodes.get(paths.partition_state(*partition))
        return None if node is None else PartitionState.decode(node.data)

    def outcome(self) -> dict[str, Any] | None:
        """What ZooKeeper says in the end, without epochs; None while anybody knows or does anything else."""
        topics = self.topics()
        states = {
            TopicPartition(name, index): (replicas, self.state(TopicPartition(name, index)))
            for name, node in topics.items()
            for index, replicas in node.assignment.items()
        }
        if any(state is None for _, state in states.values()) or self.tree.children(paths.DELETE_TOPICS):
            return None
        for number, broker in self.brokers.items():
            led = {
                TopicPartition(name, index): (info.leader, info.leader_epoch, frozenset(info.isr))
                for name, topic in broker.cache.topics.items()
                for index, info in topic.partitions.items()
            }
            hosted = {key: each[:2] for key, each in broker.hosted.items()}
            if led != {
                key: (state.leader, state.leader_epoch, frozenset(state.isr))
                for key, (_, state) in states.items()
                if state is not None
            } or hosted != {
                key: (state.leader, state.leader_epoch)
                for key, (replicas, state) in states.items()
                if state is not None and number in replicas
            }:
                return None
        return {
            "states": {
                key: (replicas, state.leader, frozenset(state.isr))
                for key, (replicas, state) in states.items()
                if state is not None
            },
            "moving": {name: (node.adding, node.removing) for name, node in topics.items()},
            "nodes": sorted(path for path in self.tree.nodes if not path.startswith("/controller")),
        }

    async def settled(self) -> dict[str, Any]:
        """The outcome, once leaders have nothing to propose and everybody agrees."""
        calm, seen = 0, -1
        async with asyncio.timeout(60):
            while True:
                await asyncio.sleep(0)
                calm = calm + 1 if seen == self.tree.changes + self.obeyed else 0
                seen = self.tree.changes + self.obeyed
                if calm == _CALM and not self._propose():
                    found = self.outcome()
                    if found is not None:
                        return found
                if calm == _CALM:
                    calm = 0

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0)

    def _propose(self) -> bool:
        """Leaders bring hosting followers into the ISR; whether there is anything to do."""
        wanted: dict[int, dict[TopicPartition, IsrProposal]] = {}
        for key, (replicas, state) in self._states().items():
            able = [n for n in replicas if n in self.brokers and key in self.brokers[n].hosted]
            leader = self.brokers.get(state.leader)
            if leader is None or key not in leader.hosted or set(able) == set(state.isr):
                continue
            if leader.hosted[key].leader_epoch != state.leader_epoch:
                continue
            version = self.tree.nodes[paths.partition_state(*key)].version
            isr = tuple((number, -1) for number in able)
            wanted.setdefault(state.leader, {})[key] = IsrProposal(state.leader_epoch, version, isr)
        for at, (controller, session) in enumerate(zip(self.controllers, self.sessions, strict=True)):
            running = self._proposals.get(at)
            if session.dead and running is not None:
                running.cancel()
            elif controller.active and not session.dead and (running is None or running.done()) and wanted:
                leader_id, proposals = next(iter(wanted.items()))
                self._proposals[at] = asyncio.create_task(_propose(controller, leader_id, proposals))
        return bool(wanted)

    def _states(self) -> dict[TopicPartition, tuple[tuple[int, ...], PartitionState]]:
        found = {}
        for name, node in self.topics().items():
            for index, replicas in node.assignment.items():
                state = self.state(TopicPartition(name, index))
                if state is not None:
                    found[TopicPartition(name, index)] = (replicas, state)
        return found


async def _propose(
    controller: Controller, leader: int, proposals: Mapping[TopicPartition, IsrProposal]
) -> None:
    try:
        await controller.alter_isr(leader, proposals)
    except ControllerMoved:
        return
