"""Plain Produce requests, which make up the load: appended and answered at the least cost per partition.

Takes what needs no refusing; waiting for other replicas is for all partitions of a request together. Those
that do not take their batch at once go the general way in a request of their own, and that answer gets the
others added; so this knows no rules of refusal. Appending must not await: batches are slices of the receive
buffer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from broker.control.metadata_cache import INTERNAL_TOPICS
from broker.replication.acknowledging import Acknowledgements
from broker.server.turns import is_long
from protocol.errors import ErrorCode
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
NO_ANSWER: Final = 0
_VALID_ACKS: Final = (ALL_REPLICAS, NO_ANSWER, 1)

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
        appended = Appended()
        left = append_plain(context.broker, request, appended)
        rest = None
        if left:
            rest = general(PlainProduce(request.acks, request.timeout_ms, left).to_request(), context)
        if request.acks == NO_ANSWER:
            return rest
        if appended.waits:
            return appended.later(rest, max(0, request.timeout_ms) / 1000)
        if rest is None:
            return PlainAcks(appended.acks)
        if not appended.acks:
            return rest
        return (
            _added_later(rest, appended.acks) if isinstance(rest, Coroutine) else _added(rest, appended.acks)
        )

    return handle


class Appended:
    """What was appended of one request: `acks` by topic, and what is waited for before they may be told."""

    __slots__ = ("_waiting", "acks", "waits")

    def __init__(self) -> None:
        self.acks: Acks = {}
        self.waits = Acknowledgements()
        self._waiting: list[tuple[str, int]] = []

    def wait_for(self, topic: str, partition: Partition, end: int) -> None:
        """Other replicas have to have what was appended up to `end`."""
        self._waiting.append((topic, partition.index))
        partition.line_up(end - 1, self.waits)

    async def later(
        self, rest: Awaitable[ProduceResponse] | ProduceResponse | None, timeout_s: float
    ) -> ProduceResponse | PlainAcks:
        """The answer when the time has come; `rest` is that to the partitions that went the general way."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        others = await rest if isinstance(rest, Awaitable) else rest
        codes = await self.waits.wait(deadline - asyncio.get_running_loop().time())
        failed = {
            where: code
            for where, code in zip(self._waiting, codes, strict=True)
            if code is not ErrorCode.NONE
        }
        if others is None and not failed:
            return PlainAcks(self.acks)
        return _added(ProduceResponse() if others is None else others, self.acks, failed)


def append_plain(
    broker: Broker, request: PlainProduce, appended: Appended
) -> dict[str, dict[int, memoryview]]:
    """Append what can be appended at once, note it in `appended`; returns what is left, by topic."""
    acks_wanted = request.acks
    if acks_wanted not in _VALID_ACKS or not INTERNAL_TOPICS.isdisjoint(request.topics):
        return request.topics
    all_replicas = acks_wanted == ALL_REPLICAS
    find = broker.replicas.find
    left: dict[str, dict[int, memoryview]] = {}
    now_ms = broker.clock.now_ms()
    for topic, batches in request.topics.items():
        appended.acks[topic] = acks = []
        count = size = 0
        for index, batch in batches.items():
            partition = find((topic, index))
            placed = None if partition is None else partition.append_ordinary(batch, now_ms, all_replicas)
            if partition is None or placed is None:
                left.setdefault(topic, {})[index] = batch
                continue
            base, end = placed
            acks.append((index, base, partition.log.start_offset))
            if all_replicas and not partition.alone:
                appended.wait_for(topic, partition, end)
            count += end - base
            size += len(batch)
        if count:
            counts = broker.metrics.topic(topic)
            counts.bytes_in += size
            counts.messages_in += count
    return left


async def _added_later(answer: Awaitable[ProduceResponse], acks: Acks) -> ProduceResponse:
    return _added(await answer, acks)


def _added(
    answer: ProduceResponse, acks: Acks, failed: Mapping[tuple[str, int], ErrorCode] = MappingProxyType({})
) -> ProduceResponse:
    answered = {topic.name: topic for topic in answer.responses}
    for name, done in acks.items():
        topic = answered.get(name)
        if topic is None:
            topic = TopicProduceResponse(name=name)
            answer.responses.append(topic)
        for index, base, start in done:
            code = failed.get((name, index), ErrorCode.NONE)
            topic.partition_responses.append(
                PartitionProduceResponse(
                    index=index,
                    error_code=code,
                    base_offset=-1 if code else base,
                    log_start_offset=start,
                )
            )
    return answer
