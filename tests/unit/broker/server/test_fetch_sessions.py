"""Fetch sessions: who gets a slot, who loses it, what the reader of a session is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.server.fetch_sessions import EVICTION_S, FetchSession, FetchSessionCache, Wanted
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch_request import FetchPartition, FetchRequest
from tests.support.served import Served, batch


def partitions(count: int) -> dict[Any, Wanted]:
    return {("t", index): Wanted("t", b"", FetchPartition(partition=index)) for index in range(count)}


def created(
    cache: FetchSessionCache, size: int, now_s: float, *, privileged: bool = False
) -> FetchSession | None:
    return cache.create(partitions(size), privileged=privileged, uses_ids=False, now_s=now_s)


def test_a_full_cache_gives_no_session_to_a_reader_while_all_are_young() -> None:
    cache = FetchSessionCache(2)
    assert created(cache, 1, 0) is not None
    assert created(cache, 1, 0) is not None
    assert created(cache, 100, 10) is None
    assert (len(cache), cache.evictions) == (2, 0)


def test_an_unused_session_gives_way_to_anybody() -> None:
    cache = FetchSessionCache(1)
    old = created(cache, 100, 0, privileged=True)
    new = created(cache, 1, EVICTION_S + 1)
    assert new is not None
    assert [session.session_id for session in cache] == [new.session_id]
    assert old is not None
    with pytest.raises(KafkaError) as error:
        cache.resume(FetchRequest(session_id=old.session_id, session_epoch=1), 12, EVICTION_S + 2)
    assert error.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_in_use_gives_way_to_a_larger_one_once_it_is_old() -> None:
    cache = FetchSessionCache(1)
    used = created(cache, 5, 0)
    assert used is not None
    for now in range(10, int(EVICTION_S) + 20, 10):
        cache.resume(FetchRequest(session_id=used.session_id, session_epoch=used.epoch), 12, now)
    assert created(cache, 4, EVICTION_S + 15) is None
    assert created(cache, 6, EVICTION_S + 15) is not None


def test_a_follower_takes_the_place_of_a_reader_at_once_and_not_the_other_way_round() -> None:
    cache = FetchSessionCache(1)
    assert created(cache, 100, 0) is not None
    assert created(cache, 1, 1, privileged=True) is not None
    assert created(cache, 100, 2) is None
    assert created(cache, 100, 2, privileged=True) is None


def test_no_slots_no_sessions() -> None:
    assert created(FetchSessionCache(0), 1, 0) is None


def test_the_epoch_starts_again_after_the_largest() -> None:
    cache = FetchSessionCache(1)
    session = created(cache, 1, 0)
    assert session is not None
    session.epoch = 2**31 - 1
    cache.resume(FetchRequest(session_id=session.session_id, session_epoch=2**31 - 1), 12, 1)
    assert session.epoch == 1


async def test_only_what_is_new_is_told(node: Served) -> None:
    node.topics.create("t", 3)
    first = await node.fetch_all(node.fetch_request("t", 0, (0, 1, 2), session_epoch=0))
    assert first.session_id
    assert len(first.responses[0].partitions) == 3
    await node.produce("t", batch(b"a"), 1)
    await node.produce("t", batch(b"b"), 2)
    second = await node.fetch_all(FetchRequest(session_id=first.session_id, session_epoch=1))
    assert [part.partition_index for part in second.responses[0].partitions] == [1, 2]
    request = node.fetch_request("t", 1, (1, 2), session_id=first.session_id, session_epoch=2)
    assert (await node.fetch_all(request)).responses == []


async def test_a_waiting_session_is_woken_by_a_partition_that_it_did_not_name(node: Served) -> None:
    node.topics.create("t", 50)
    first = await node.fetch_all(node.fetch_request("t", 0, range(50), session_epoch=0))
    waiting = FetchRequest(session_id=first.session_id, session_epoch=1, max_wait_ms=30_000, min_bytes=1)
    async with node.another() as reader:
        answer = asyncio.create_task(reader.send(waiting, 17))
        await node.produce("t", batch(b"a"), 33)
        found = await answer
    assert [part.partition_index for topic in found.responses for part in topic.partitions] == [33]


async def test_a_topic_that_is_deleted_is_an_error_in_the_session(node: Served) -> None:
    node.topics.create("t")
    node.topics.create("gone")
    request = node.fetch_request("t", 0, session_epoch=0)
    request.topics += node.fetch_request("gone", 0).topics
    first = await node.fetch_all(request)
    node.topics.delete("gone")
    found = await node.fetch_all(FetchRequest(session_id=first.session_id, session_epoch=1))
    assert [part.error_code for topic in found.responses for part in topic.partitions] == [
        ErrorCode.UNKNOWN_TOPIC_ID
    ]


async def test_names_and_ids_do_not_mix(node: Served) -> None:
    node.topics.create("t")
    first = await node.fetch_all(node.fetch_request("t", 0, session_epoch=0))
    mixed = await node.fetch_all(FetchRequest(session_id=first.session_id, session_epoch=1), 12)
    assert mixed.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_after_a_closed_session_there_is_none(node: Served) -> None:
    node.topics.create("t")
    first = await node.fetch_all(node.fetch_request("t", 0, session_epoch=0))
    closing = node.fetch_request("t", 0, session_id=first.session_id, session_epoch=-1)
    assert (await node.fetch_all(closing)).session_id == 0
    assert len(node.broker.fetch_sessions) == 0


async def test_a_moved_start_and_a_moved_high_watermark_are_news_once(node: Served) -> None:
    node.topics.create("t", 2)
    await node.produce("t", batch(b"a", b"b"), 0)
    request = node.fetch_request("t", 2, session_epoch=0)
    request.topics[0].partitions += node.fetch_request("t", 0, (1,)).topics[0].partitions
    first = await node.fetch_all(request)
    session, epoch = first.session_id, 1

    async def told() -> list[tuple[int, int, int, int]]:
        nonlocal epoch
        found = await node.fetch_all(FetchRequest(session_id=session, session_epoch=epoch, max_wait_ms=0))
        epoch += 1
        assert found.error_code == ErrorCode.NONE
        return [
            (part.partition_index, part.error_code, part.log_start_offset, part.high_watermark)
            for topic in found.responses
            for part in topic.partitions
        ]

    assert await told() == []
    partition = node.broker.replicas.leader("t", 0)
    partition.log.delete_before(1)
    assert await told() == [(0, ErrorCode.NONE, 1, 2)]
    assert await told() == []


@pytest.mark.parametrize("version", [12, 17])
async def test_an_error_that_goes_away_and_a_topic_made_anew_are_told(node: Served, version: int) -> None:
    topic_id = node.topics.create("t")
    first = await node.fetch_all(node.fetch_request("t", 0, session_epoch=0, version=version), version)
    epoch = 1

    async def told() -> list[int]:
        nonlocal epoch
        request = FetchRequest(session_id=first.session_id, session_epoch=epoch, max_wait_ms=0)
        found = await node.fetch_all(request, version)
        epoch += 1
        assert found.error_code == ErrorCode.NONE
        return [part.error_code for topic in found.responses for part in topic.partitions]

    assert await told() == []
    node.topics.lead("t", topic_id, range(1), -1, leader_epoch=1)
    assert await told() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert await told() == [ErrorCode.NOT_LEADER_OR_FOLLOWER], "an error is told each time"
    node.topics.lead("t", topic_id, range(1), 1, leader_epoch=2)
    assert await told() == [ErrorCode.NONE]
    assert await told() == []
    node.topics.delete("t")
    gone = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await told() == [gone]
    node.topics.create("t")
    await node.produce("t", batch(b"new"))
    assert await told() == [gone if version >= 13 else ErrorCode.NONE]
