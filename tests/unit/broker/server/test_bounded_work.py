"""One request cannot hold up the others, nor end in silence: bounded turns, an answer to each failure."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from typing import Any

import pytest

from broker.server.error_answers import error_answer
from broker.server.handlers.metadata import MOST_CREATED
from broker.server.registry import Registry
from broker.server.turns import MANY_ITEMS, MAX_ITEMS, count_items
from protocol.api import APIS
from protocol.client.errors import ConnectionLostError
from protocol.codec import decode, dumps
from protocol.codec.schema import Struct, version_range
from protocol.errors import ErrorCode
from protocol.frames import encode_request
from protocol.messages.describe_groups_request import DescribeGroupsRequest
from protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.served import Served, batch

MANY = 50_000
MOST = MANY_ITEMS - 1
ENTRIES = list(Registry.discover())


def fetch(index: Any) -> Any:
    parts = [FetchPartition(partition=index(n), partition_max_bytes=1000) for n in range(MANY)]
    return FetchRequest(topics=[FetchTopic(topic="t", partitions=parts)], session_epoch=-1), 12


def list_offsets(index: Any) -> Any:
    parts = [ListOffsetsPartition(partition_index=index(n), timestamp=-1) for n in range(MANY)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=parts)]), 7


def metadata(index: Any) -> Any:
    topics = [MetadataRequestTopic(name=f"t{index(n)}") for n in range(MANY)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12


def nested(index: Any) -> Any:
    """Loops within loops count together."""
    parts = [ListOffsetsPartition(partition_index=index(n), timestamp=-1) for n in range(300)]
    topics = [ListOffsetsTopic(name=f"t{number}", partitions=parts) for number in range(MANY // 300)]
    return ListOffsetsRequest(topics=topics), 7


def epochs(index: Any) -> Any:
    parts = [OffsetForLeaderPartition(partition=index(n), leader_epoch=0) for n in range(MANY)]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=parts)]), 4


def positions(index: Any) -> Any:
    return OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(
        name="t", partition_indexes=[index(n) for n in range(MOST)]
    )]), 7  # fmt: skip


def positions_of_groups(index: Any) -> Any:
    asked = [OffsetFetchRequestTopics(name="t", partition_indexes=[index(n) for n in range(300)])]
    groups = [OffsetFetchRequestGroup(group_id=f"g{n}", topics=asked) for n in range(MOST // 302)]
    return OffsetFetchRequest(groups=groups), 8


def commit(index: Any) -> Any:
    parts = [OffsetCommitRequestPartition(partition_index=index(n), committed_offset=n) for n in range(MANY)]
    topics = [OffsetCommitRequestTopic(name="t", partitions=parts)]
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics), 8


class LoopTurns:
    """The longest turn of the event loop between `start` and `end`, in CPU seconds of its thread: what other
    programs do, and what is done in other threads, does not count."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._running = True
        self._last_s = 0.0

    def start(self) -> None:
        self._last_s = time.thread_time()
        asyncio.get_running_loop().call_soon(self._beat)

    def _beat(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s
        if self._running:
            asyncio.get_running_loop().call_later(0.0005, self._beat)

    def end(self) -> float:
        self._running = False
        return self.longest_s


async def longest_turn_s(node: Served, frame: bytes) -> float:
    """The longest turn while the request is served. Collecting garbage is another matter, so that rests."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    turns = LoopTurns()
    gc.disable()
    try:
        writer.write(frame)
        turns.start()
        assert int.from_bytes(await reader.readexactly(4), "big") > 4
        return turns.end()
    finally:
        gc.enable()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


LARGE = [fetch, list_offsets, metadata, nested, epochs, positions, positions_of_groups, commit]
A_TURN_S = 0.100
"""In one go these requests took 120 to 470 ms on the machine where they now take 2 to 47 ms."""


@pytest.mark.parametrize("ask", LARGE)
@pytest.mark.parametrize("index", [lambda n: 0, lambda n: n], ids=["the same", "others"])
async def test_a_request_for_very_many_things_lets_others_go_on(node: Served, ask: Any, index: Any) -> None:
    node.topics.create("t")
    request, version = ask(index)
    frame = b"".join(bytes(part) for part in encode_request(request, version, 7))
    assert await longest_turn_s(node, frame) < A_TURN_S


async def test_a_partition_that_is_fetched_many_times_is_read_once(node: Served) -> None:
    node.topics.create("t")
    await node.produce("t", batch(b"a"))
    parts = [FetchPartition(partition=0, partition_max_bytes=1000) for _ in range(1000)]
    request = FetchRequest(topics=[FetchTopic(topic="t", partitions=parts)], session_epoch=-1)
    answer = await node.connection.send(request, 12)
    assert [len(topic.partitions) for topic in answer.responses] == [1]


def many_batches(parts: int, first: int = 0) -> ProduceRequest:
    """To partitions in descending order, so that 0 comes last."""
    data = [PartitionProduceData(index=n, records=batch(b"a")) for n in reversed(range(first, parts))]
    return ProduceRequest(
        acks=1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )


@pytest.mark.parametrize("transactional_id", [None, "t"], ids=["plain", "transactional"])
async def test_a_batch_for_each_of_very_many_partitions_lets_others_go_on(
    node: Served, transactional_id: str | None
) -> None:
    node.topics.create("t", 200)
    request = many_batches(19_000)
    request.transactional_id = transactional_id
    frame = b"".join(bytes(part) for part in encode_request(request, 11, 7))
    assert await longest_turn_s(node, frame) < A_TURN_S
    assert (await node.fetch("t", 0)).high_watermark == 1


async def test_what_is_appended_in_turns_is_answered_in_order_and_not_overtaken(node: Served) -> None:
    node.topics.create("t", 700)
    first, second = await asyncio.gather(
        node.connection.send(many_batches(700), 11), node.connection.send(many_batches(1), 11)
    )
    (topic,) = first.responses
    assert [each.index for each in topic.partition_responses] == list(reversed(range(700)))
    assert {(each.error_code, each.base_offset) for each in topic.partition_responses} == {(0, 0)}
    assert second.responses[0].partition_responses[0].base_offset == 1


async def test_a_failure_in_a_later_turn_closes_a_connection_that_wants_no_answer(node: Served) -> None:
    node.topics.create("t", 600)
    request = many_batches(1000)
    request.acks = 0
    with pytest.raises(ConnectionLostError):
        await node.connection.send(request, 11)


async def test_of_a_partition_that_is_produced_to_twice_the_last_batch_counts(node: Served) -> None:
    node.topics.create("t")
    topics = [
        TopicProduceData(
            name="t", partition_data=[PartitionProduceData(index=0, records=batch(value)) for value in values]
        )
        for values in ((b"a", b"b"), (b"c",))
    ]
    request = ProduceRequest(acks=1, timeout_ms=5000, topic_data=topics)
    answer = await node.connection.send(request, 11)
    ((only,),) = (topic.partition_responses for topic in answer.responses)
    assert (only.error_code, only.base_offset) == (0, 0)
    assert (await node.fetch("t", 0)).high_watermark == 1


async def test_a_produce_request_with_more_partitions_than_a_producer_has_is_refused(node: Served) -> None:
    parts = [PartitionProduceData(index=index, records=b"") for index in range(30_000)]
    topic = TopicProduceData(name="t", partition_data=parts)
    with pytest.raises(ConnectionLostError):
        await node.connection.send(ProduceRequest(acks=1, topic_data=[topic]), 11)


async def test_a_request_for_more_than_is_served_at_once_is_refused(node: Served) -> None:
    request = DescribeGroupsRequest(groups=["g"] * (MAX_ITEMS + 1))
    with pytest.raises(ConnectionLostError):
        await node.connection.send(request, 5)


async def test_one_request_creates_a_bounded_number_of_topics(node: Served) -> None:
    names = [f"new-{number}" for number in range(MOST_CREATED + 20)]
    topics = [MetadataRequestTopic(name=name) for name in names]
    answer = await node.connection.send(MetadataRequest(topics=topics), 8)
    codes = [topic.error_code for topic in answer.topics]
    assert codes.count(ErrorCode.LEADER_NOT_AVAILABLE) >= 20
    assert len(node.broker.metadata.topics) <= MOST_CREATED


def test_items_are_counted_at_every_level() -> None:
    group = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[1, 2, 3])]
    )
    assert count_items(OffsetFetchRequest(groups=[group, group])) == 2 + 2 + 6


def filled(struct: type[Struct], version: int) -> Any:
    """An instance with one item in each array."""
    made: Any = struct()
    for field in struct.FIELDS:
        if version in version_range(field.versions) and field.kind.startswith("[]"):
            item: Any = {"[]string": "x", "[]uuid": bytes(16)}.get(field.kind, 1)
            setattr(made, field.name, [filled(field.of, version) if field.of is not None else item])
    return made


def codes(answer: Any) -> list[int]:
    found = []
    for field in type(answer).FIELDS:
        value = getattr(answer, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.append(int(value))
        elif field.kind == "[]struct" and value:
            found += [code for item in value for code in codes(item)]
    return found


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_request_has_an_error_answer_in_its_own_layout(entry: Any) -> None:
    for version in range(entry.min, entry.max + 1):
        answer = error_answer(filled(entry.request, version), version, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert answer is not None, f"{entry.name} v{version}"
        read = decode(APIS[entry.key].response, version, dumps(answer, version))
        assert ErrorCode.UNKNOWN_SERVER_ERROR in codes(read), f"{entry.name} v{version}"


async def test_a_handler_that_fails_is_answered_and_the_connection_stays(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.topics.create("t")

    def broken(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    with monkeypatch.context() as patch:
        patch.setattr(node.broker.replicas, "leader", broken)
        answer = await node.produce("t", batch(b"a"))
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        listed = await node.connection.send(
            ListOffsetsRequest(
                topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])]
            ),
            7,
        )
        assert listed.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        with pytest.raises(ConnectionLostError):  # acks=0 has no answer
            await node.produce("t", batch(b"a"), acks=0)
