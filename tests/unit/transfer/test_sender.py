"""What a sender makes of answers, of none, and of a connection that takes no more."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from protocol.client import ConnectError, ConnectionLostError
from protocol.codec import decode
from protocol.errors import ErrorCode
from protocol.frames import encode_response
from protocol.messages.produce_request import ProduceRequest
from protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records import Record, build_batch
from protocol.types import TopicPartition
from transfer.endpoint import Chunk
from transfer.kafka import sender
from transfer.kafka.lane import Pending, ProduceLane, Ticket
from transfer.kafka.sender import BrokerSender
from transfer.ledger import ProducerState
from transfer.rewrite import plan

VERSIONS = (8, 12, 13)
"""The general way, topics by name, topics by id."""


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")[:16]


class Connection:
    """Keeps what it is asked; the test answers."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.closed = self.retired = False
        self.asked: list[tuple[ProduceRequest, Callable[[object], None]]] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    @property
    def waiting(self) -> bool:
        return bool(self.asked)

    @property
    def full(self) -> bool:
        return not self.may_go_on.is_set()

    async def writable(self) -> None:
        await self.may_go_on.wait()

    def version_of(self, request: object, newest: object = None) -> int:
        return self.version

    def call(self, request: object, version: int, body: list[bytes], answered: Callable) -> bool:
        self.asked.append((decode(ProduceRequest, version, b"".join(body)), answered))
        return True

    async def close(self) -> None:
        self.closed = True

    def answer(self, rows: dict[str, list[PartitionProduceResponse]]) -> None:
        """Answers the oldest request."""
        topics = [
            TopicProduceResponse(name=name, topic_id=topic_id(name), partition_responses=parts)
            for name, parts in rows.items()
        ]
        frame = b"".join(encode_response(ProduceResponse(responses=topics), self.version, 1))[4:]
        self.asked.pop(0)[1](memoryview(frame))


class World:
    def __init__(self, version: int = 12) -> None:
        self.connection = Connection(version)
        self.refuses = 0
        self.lanes: list[ProduceLane] = []
        self.heard: list[tuple[object, ...]] = []
        self.faults: list[BaseException] = []
        self.sender = BrokerSender(
            self._dial,
            lambda lane, _, base: self.heard.append(("landed", lane.tp, base)),
            lambda lane, _, row: self.heard.append(("failed", lane.tp, ErrorCode.of(row.error_code).name)),
            lambda entries: self.heard.extend(("lost", lane.tp) for lane, _ in entries),
            lambda lanes: self.heard.extend(("unreachable", lane.tp) for lane in lanes),
            request_bytes=1 << 20,
            timeout_ms=1000,
            topic_ids=topic_id,
            broken=self.faults.append,
        )

    async def _dial(self) -> Connection:
        if self.refuses:
            self.refuses -= 1
            raise ConnectError("nobody there")
        return self.connection

    def offer(self, topic: str, partition: int, batches: int = 1) -> None:
        tp = TopicPartition(topic, partition)
        lane = ProduceLane(tp, ProducerState(5, 0, 0))
        self.lanes.append(lane)
        for number in range(batches):
            batch = build_batch([Record(0, 1, b"k", b"v")], base_offset=number)
            outs, _ = plan(Chunk(tp, memoryview(batch), number, number + 1))
            ticket = Ticket(asyncio.get_running_loop().create_future(), number + 1)
            ticket.batches = [Pending(out, ticket) for out in outs]
            lane.offer(ticket)
        self.sender.wake(lane)

    async def sent(self) -> list[tuple[str, int]]:
        for _ in range(5):
            await asyncio.sleep(0)
        return [
            (topic.name or str(topic.topic_id, "ascii").rstrip("-"), data.index)
            for request, _ in self.connection.asked
            for topic in request.topic_data
            for data in topic.partition_data
        ]


def row(index: int, base: int = -1, code: ErrorCode = ErrorCode.NONE) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, base_offset=base, error_code=code)


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_hears_its_own_answer_in_whatever_order(version):
    world = World(version)
    for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
        world.offer(topic, partition)
    assert await world.sent() == [("a", 0), ("a", 1), ("b", 0)]
    world.connection.answer({"b": [row(0, 30)], "a": [row(1, 20), row(0, 10)]})
    assert sorted(world.heard) == [
        ("landed", TopicPartition("a", 0), 10),
        ("landed", TopicPartition("a", 1), 20),
        ("landed", TopicPartition("b", 0), 30),
    ]
    await world.sender.close()


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_an_answer_leaves_out_is_lost_and_what_nobody_asked_is_nothing(version):
    world = World(version)
    for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
        world.offer(topic, partition)
    await world.sent()
    world.connection.answer({"a": [row(1, 20), row(7, 70)], "c": [row(0, 30)]})
    assert sorted(world.heard) == [
        ("landed", TopicPartition("a", 1), 20),
        ("lost", TopicPartition("a", 0)),
        ("lost", TopicPartition("b", 0)),
    ]
    await world.sender.close()


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_error_concerns_its_partition_alone(version):
    world = World(version)
    for partition in range(3):
        world.offer("a", partition)
    await world.sent()
    world.connection.answer({"a": [row(0, 5), row(1, code=ErrorCode.MESSAGE_TOO_LARGE), row(2, 6)]})
    assert world.heard == [
        ("landed", TopicPartition("a", 0), 5),
        ("failed", TopicPartition("a", 1), "MESSAGE_TOO_LARGE"),
        ("landed", TopicPartition("a", 2), 6),
    ]
    await world.sender.close()


@pytest.mark.parametrize(
    "answer", [memoryview(b"\0\0\0\1\0\xff\xff"), memoryview(b""), ConnectionLostError("gone")]
)
async def test_without_an_answer_that_can_be_read_all_are_lost(answer):
    world = World()
    world.offer("a", 0)
    world.offer("b", 0)
    await world.sent()
    world.connection.asked.pop()[1](answer)
    assert world.heard == [("lost", TopicPartition("a", 0)), ("lost", TopicPartition("b", 0))]
    assert not world.faults
    await world.sender.close()


async def test_a_fault_of_whoever_hears_is_told_and_leaves_nobody_without_a_word():
    world = World()
    world.offer("a", 0)
    world.offer("a", 1)
    await world.sent()

    def faulty(lane, *_):
        raise ZeroDivisionError(lane.tp)

    world.sender._landed = faulty
    world.connection.answer({"a": [row(0, 5), row(1, 6)]})
    (fault,) = world.faults
    assert isinstance(fault.__cause__, ZeroDivisionError)
    assert world.heard == [("lost", TopicPartition("a", 1))]
    await world.sender.close()


async def test_nothing_is_taken_while_the_connection_takes_no_more():
    world = World()
    world.offer("a", 0)
    assert await world.sent() == [("a", 0)]
    world.connection.may_go_on.clear()
    world.offer("b", 0)
    world.offer("b", 1)
    assert await world.sent() == [("a", 0)]
    world.connection.may_go_on.set()
    assert await world.sent() == [("a", 0), ("b", 0), ("b", 1)]
    assert len(world.connection.asked) == 2, "what came meanwhile goes together"
    await world.sender.close()


async def test_one_batch_of_a_partition_in_a_request_and_one_before_the_first_is_there():
    world = World()
    world.offer("a", 0, batches=3)
    world.offer("a", 1)
    assert await world.sent() == [("a", 0), ("a", 1)]
    await world.sender.close()


async def test_who_cannot_be_reached_is_said_and_tried_again_when_somebody_asks():
    world = World()
    world.refuses = 1
    world.offer("a", 0)
    await world.sent()
    assert world.heard == [("unreachable", TopicPartition("a", 0))]
    world.offer("a", 1)
    async with asyncio.timeout(5):
        while not await world.sent():
            await asyncio.sleep(0.02)
    assert await world.sent() == [("a", 1)]
    await world.sender.close()


async def test_answers_behind_the_end_are_nothing():
    world = World()
    world.offer("a", 0)
    await world.sent()
    await world.sender.close()
    world.connection.answer({"a": [row(0, 5)]})
    world.offer("a", 1)
    assert await world.sent() == []
    assert not world.heard
    assert world.connection.closed


async def test_a_lane_that_backs_off_is_not_sent_to_the_leader_it_has_left():
    world = World()
    world.offer("a", 0)
    await world.sent()
    (lane,) = world.lanes
    lane.retry(lane._in_flight[0], asyncio.get_running_loop().time())
    world.connection.asked.clear()
    world.sender.wake(lane)
    assert await world.sent() == []
    world.sender.drop(lane)
    await asyncio.sleep(0.08)  # longer than its back-off: nothing is to happen
    assert await world.sent() == []
    world.sender.wake(lane)
    assert await world.sent() == [("a", 0)]
    await world.sender.close()


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
async def test_a_session_that_ends_is_left_once_all_is_answered(code):
    """KIP-368: a broker drops the connection of who goes on, and what is on it is lost."""
    world = World()
    world.offer("a", 0)
    await world.sent()
    old = world.connection
    old.retired, world.connection = True, Connection(12)
    world.offer("b", 0)
    assert await world.sent() == []
    assert len(old.asked) == 1
    old.answer({"a": [row(0, 5, code)]})
    assert await world.sent() == [("b", 0)]
    assert not old.asked
    await world.sender.close()


async def test_who_backs_off_is_sent_when_that_is_over():
    world = World()
    world.offer("a", 0)
    await world.sent()
    (lane,) = world.lanes
    lane.retry(lane._in_flight[0], asyncio.get_running_loop().time())
    world.connection.asked.clear()
    for _ in range(3):
        world.sender.wake(lane)
        assert await world.sent() == []
    async with asyncio.timeout(5):
        while not await world.sent():
            await asyncio.sleep(0.01)
    assert await world.sent() == [("a", 0)]
    await world.sender.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_permission_that_comes_back_is_noticed_however_often_it_was_asked_for(loop, monkeypatch):
    """A timer of uvloop may say that it is due some bits after the time at which it is called."""
    monkeypatch.setattr(sender, "_ASK_AGAIN_S", 0.003)

    async def main() -> None:
        world = World()
        asked = 0

        def may_write() -> bool:
            nonlocal asked
            asked += 1
            return asked > 150

        world.sender._may_write = may_write
        world.offer("a", 0)
        async with asyncio.timeout(10):
            while not await world.sent():
                await asyncio.sleep(0.01)
        await world.sender.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


async def test_a_fault_about_what_is_lost_does_not_reach_the_connection():
    world = World()
    world.offer("a", 0)
    await world.sent()

    def faulty(entries):
        raise ZeroDivisionError(len(entries))

    world.sender._lost = faulty
    world.connection.asked.pop()[1](ConnectionLostError("gone"))
    assert [repr(fault.__cause__) for fault in world.faults] == ["ZeroDivisionError(1)"]
    await world.sender.close()


async def test_an_end_right_after_the_connection_is_full_leaves_nothing_that_was_never_awaited():
    world = World()
    world.offer("a", 0)
    await world.sent()
    world.connection.may_go_on.clear()
    world.sender._ready[world.lanes[0]] = None
    world.sender._send_all()
    await world.sender.close()
