"""Reading a link's own topics: all rows or an error, never some of them for all."""

from typing import Any

import pytest

from protocol.client import (
    LATEST,
    ConfigEntry,
    ConfigSource,
    Fetched,
    ListedOffset,
    NewTopic,
    RetryPolicy,
    TopicMetadata,
)
from protocol.client.metadata import Metadata
from protocol.errors import ErrorCode, KafkaError
from protocol.records import Record, build_batch
from protocol.types import TopicPartition
from replicator.internal_topics import InternalTopic, NotKeptError
from replicator.progress import ProgressStore


class Topic:
    """A client of a cluster with one topic of three rows in three batches. `answers` are what its fetches
    give: the batch at the position, or nothing."""

    retry = RetryPolicy()

    def __init__(self, answers: str, *, exists: bool = True) -> None:
        self._answers = iter(answers)
        self._exists = exists
        self.waits_s: list[float] = []

    async def list_offsets(
        self, spots: dict[TopicPartition, int], *, retry: RetryPolicy = retry
    ) -> dict[TopicPartition, ListedOffset]:
        self.waits_s.append(retry.unknown_topic_s)
        if not self._exists:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "not known here")
        return {tp: ListedOffset(3 if spot == LATEST else 0, -1, -1) for tp, spot in spots.items()}

    async def fetch(self, tp: TopicPartition, offset: int, **_: Any) -> Fetched:
        data = b""
        if next(self._answers, ".") == "b":
            data = bytes(build_batch([Record(0, 1, b"%d" % offset, b"v")], base_offset=offset))
        return Fetched(tp, memoryview(data), 3, 3, 0)


ALL = [(b"0", b"v"), (b"1", b"v"), (b"2", b"v")]


async def test_an_answer_without_data_is_not_the_end() -> None:
    topic = InternalTopic(Topic("b..b.b"), "links")  # type: ignore[arg-type]
    assert await topic.read_new() == ALL
    assert await topic.read_new() == []


async def test_rows_before_a_failure_are_read_again() -> None:
    topic = InternalTopic(Topic("bb" + "." * 20 + "bbb"), "links")  # type: ignore[arg-type]
    with pytest.raises(KafkaError, match="no batches at offset 2, its end is 3"):
        await topic.read_new()
    assert await topic.read_new() == ALL


async def test_progress_of_a_topic_that_the_broker_does_not_know_yet_is_not_empty_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = Topic("", exists=False)
    store = ProgressStore(topic, "links")  # type: ignore[arg-type]

    async def there(self: InternalTopic) -> None: ...

    monkeypatch.setattr(InternalTopic, "ensure", there)
    with pytest.raises(KafkaError) as caught:
        await store.load()
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await store.refresh()).entries() == {}  # who only looks on finds nothing
    assert topic.waits_s == [5.0, 1.0]  # and holds up those who would make it for a second


async def test_too_few_brokers_for_a_topic_of_the_link_is_said_with_what_to_do() -> None:
    class Small(Topic):
        async def metadata(self, _: list[str]) -> Metadata:
            return Metadata(None, -1)

        async def create_topics(self, _: list[NewTopic]) -> None:
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "3 > 1 brokers")

    with pytest.raises(KafkaError) as caught:
        await InternalTopic(Small(""), "links", replication_factor=3).ensure()  # type: ignore[arg-type]
    assert "replication factor lower" in caught.value.to_do


class Made(Topic):
    """One that somebody has made before the link."""

    def __init__(self, policy: str | ErrorCode) -> None:
        super().__init__("bbb")
        self.policy = policy

    async def metadata(self, names: list[str]) -> Metadata:
        topic = TopicMetadata(names[0], bytes(16), ErrorCode.NONE, False, {})
        return Metadata(None, -1, topics={names[0]: topic})

    async def describe_configs(
        self, names: list[str], *, keys: list[str]
    ) -> dict[str, dict[str, ConfigEntry]]:
        assert keys == ["cleanup.policy"]
        if isinstance(self.policy, ErrorCode):
            raise KafkaError(self.policy, names[0])
        return {names[0]: {keys[0]: ConfigEntry(self.policy, ConfigSource.TOPIC, False, False)}}


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_progress_is_not_stored_where_retention_would_take_it(policy: str) -> None:
    made = Made(policy)
    store = ProgressStore(made, "links")  # type: ignore[arg-type]
    with pytest.raises(NotKeptError, match=r"set cleanup\.policy=compact on links"):
        await store.load()
    made.policy = "compact"
    await store.load()
    await InternalTopic(Made(policy), "heartbeats").ensure()  # type: ignore[arg-type]


async def test_a_policy_that_may_not_be_seen_is_trusted() -> None:
    await ProgressStore(Made(ErrorCode.TOPIC_AUTHORIZATION_FAILED), "links").load()  # type: ignore[arg-type]
