"""Plain Produce requests, which make up the load: appended and answered at the least cost per partition.

Takes what needs neither waiting nor refusing. Partitions that do not take their batch at once go the general
way in a request of their own, and that answer gets the others added; so this knows no error codes. Must not
await: batches are slices of the receive buffer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from broker.control.metadata_cache import INTERNAL_TOPICS
from broker.server.turns import is_long
from protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.plain_produce import Ack, PlainAcks, PlainProduce

if TYPE_CHECKING:
    from broker.replication import Partition
    from broker.server.app import Broker
    from broker.server.context import RequestContext
    from protocol.messages.produce_request import ProduceRequest

ALL_REPLICAS: Final = -1

Acks = dict[str, list[Ack]]
General = Callable[["ProduceRequest", "RequestContext"], Any]


def plain_first(general: General) -> Callable[[PlainProduce | ProduceRequest, RequestContext], Any]:
    """The handler `general`, which takes messages, with the short way before it."""

    @wraps(general)
    def handle(request: PlainProduce | ProduceRequest, context: RequestContext) -> Any:
        if not isinstance(request, PlainProduce):
            return general(request, context)
        if is_long(map(len, request.topics.values())):
            return general(request.to_request(), context)
        done: Acks = {}
        left = append_plain(context.broker, request, done)
        if not left:
            return PlainAcks(done)
        answer = general(PlainProduce(request.acks, request.timeout_ms, left).to_request(), context)
        if not done:
            return answer
        return _added_later(answer, done) if isinstance(answer, Coroutine) else _added(answer, done)

    return handle


def append_plain(broker: Broker, request: PlainProduce, done: Acks) -> dict[str, dict[int, memoryview]]:
    """Append what can be appended at once, note it in `done`; returns what is left, by topic."""
    all_replicas = request.acks == ALL_REPLICAS
    if not (all_replicas or request.acks == 1) or not INTERNAL_TOPICS.isdisjoint(request.topics):
        return request.topics
    find = broker.replicas.find
    if all_replicas and _has_to_wait(request, find):
        return request.topics
    left: dict[str, dict[int, memoryview]] = {}
    now_ms = broker.clock.now_ms()
    for topic, batches in request.topics.items():
        done[topic] = acks = []
        count = size = 0
        for index, batch in batches.items():
            partition = find((topic, index))
            placed = None if partition is None else partition.append_ordinary(batch, now_ms, all_replicas)
            if partition is None or placed is None:
                left.setdefault(topic, {})[index] = batch
                continue
            base, end = placed
            acks.append((index, base, partition.log.start_offset))
            count += end - base
            size += len(batch)
        if count:
            counts = broker.metrics.topic(topic)
            counts.bytes_in += size
            counts.messages_in += count
    return left


def _has_to_wait(request: PlainProduce, find: Callable[[tuple[str, int]], Partition | None]) -> bool:
    """Whether a follower of any partition has to have its batch before the answer."""
    found = (find((topic, index)) for topic, batches in request.topics.items() for index in batches)
    return not all(partition is None or partition.alone for partition in found)


async def _added_later(answer: Awaitable[ProduceResponse], done: Mapping[str, list[Ack]]) -> ProduceResponse:
    return _added(await answer, done)


def _added(answer: ProduceResponse, done: Mapping[str, list[Ack]]) -> ProduceResponse:
    answered = {topic.name: topic for topic in answer.responses}
    for name, acks in done.items():
        topic = answered.get(name)
        if topic is None:
            topic = TopicProduceResponse(name=name)
            answer.responses.append(topic)
        topic.partition_responses += [
            PartitionProduceResponse(index=index, base_offset=base, log_start_offset=start)
            for index, base, start in acks
        ]
    return answer
