"""What a coordinator that comes back, or takes over, knows: members, assignments, offsets."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.coordinator.offsets.committed import CommittedOffset
from broker.coordinator.offsets_log import OFFSETS_TOPIC, OffsetsLog
from broker.coordinator.records import offset_record
from broker.log.errors import CorruptLog
from broker.log.incoming import Origin
from protocol.errors import ErrorCode
from protocol.messages.describe_groups_request import DescribeGroupsRequest
from protocol.messages.fetch_request import FetchRequest
from protocol.records import Codec, Record, build_batch, decode_batches
from protocol.types import TopicPartition
from tests.support.group_client import GroupClient
from tests.support.served import Served
from tests.unit.broker.coordinator.reborn import IDS, PARTITIONS, lead, life

E = ErrorCode


async def _loaded(place: Served) -> None:
    async with asyncio.timeout(10):
        while place.broker.groups.is_loading:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("codec", ["0", "2", "4"])
async def test_members_continue_and_offsets_stay_over_a_restart(tmp_path: Path, codec: str) -> None:
    member, simple = GroupClient(None, "g", instance="i1"), GroupClient(None, "simple")  # type: ignore[arg-type]
    async with life(tmp_path, 0, offsets_topic_compression_codec=codec) as place:
        member.connection = simple.connection = place.connection
        await member.be_alone()
        await member.commit({("t", 0): 4, ("t", 1): 5}, metadata="mine")
        await simple.commit({("t", 0): 7})
        await simple.commit({("t", 0): 8})
    async with life(tmp_path, 1, offsets_topic_compression_codec=codec) as place:
        await _loaded(place)
        member.connection = simple.connection = place.connection
        assert await member.heartbeat() == E.NONE
        assert (await member.sync()).assignment == b"all"
        assert await member.committed(None) == (0, {("t", 0): (4, 0), ("t", 1): (5, 0)})
        assert await simple.committed({"t": [0]}) == (0, {("t", 0): (8, 0)})
        (group,) = (await place.connection.send(DescribeGroupsRequest(groups=["g"]), 5)).groups
        assert (group.group_state, group.protocol_data) == ("Stable", "range")
        assert [(m.group_instance_id, m.member_metadata) for m in group.members] == [("i1", member.metadata)]
        assert await member.commit({("t", 2): 6}) == {("t", 2): 0}
        again = await member.join()  # the only member leads: a new round, generations go on
        assert again.generation_id == 2


async def test_a_copy_of_the_directory_as_it_is_at_any_moment_is_enough(tmp_path: Path) -> None:
    """As after SIGKILL: nothing was closed, what was answered is in the page cache."""
    async with life(tmp_path / "a", 0) as place:
        member = GroupClient(place.connection, "g")
        await member.be_alone()
        await member.commit({("t", 0): 4})
        await asyncio.to_thread(shutil.copytree, tmp_path / "a", tmp_path / "b")
    async with life(tmp_path / "b", 1) as place:
        await _loaded(place)
        member.connection = place.connection
        assert await member.heartbeat() == E.NONE
        assert await member.committed({"t": [0]}) == (0, {("t", 0): (4, 0)})


async def test_what_was_deleted_stays_deleted(tmp_path: Path) -> None:
    async with life(tmp_path, 0) as place:
        for group in ("a", "b"):
            await GroupClient(place.connection, group).commit({("t", 0): 4, ("t", 1): 4})
        member = GroupClient(place.connection, "m")
        await member.be_alone()
        await member.leave()
        assert await place.broker.groups.offsets.delete("a", [TopicPartition("t", 0)]) == E.NONE
        assert await place.broker.groups.offsets.delete_group("b") == E.NONE
    async with life(tmp_path, 1) as place:
        await _loaded(place)
        client = GroupClient(place.connection, "a")
        assert await client.committed(None) == (0, {("t", 1): (4, 0)})
        assert {group.group_id: group.state.value for group in place.broker.groups.all_groups()} == {
            "a": "Empty",
            "m": "Empty",
        }
        assert place.broker.groups.find("m").generation == 2  # type: ignore[union-attr]


async def test_a_member_that_does_not_come_back_is_removed_after_its_session(tmp_path: Path) -> None:
    settings = {"group_min_session_timeout_ms": "50"}
    async with life(tmp_path, 0, **settings) as place:
        member = GroupClient(place.connection, "g")
        member.session_ms = 100
        await member.be_alone()
    async with life(tmp_path, 1, **settings) as place:
        await _loaded(place)
        async with asyncio.timeout(5):
            while place.broker.groups.find("g").members:  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
        member.connection = place.connection
        assert await member.heartbeat() == E.UNKNOWN_MEMBER_ID


async def test_leadership_that_ends_sends_everybody_to_the_new_coordinator(tmp_path: Path) -> None:
    async with life(tmp_path, 0) as place:
        first = GroupClient(place.connection, "g")
        await first.be_alone()
        async with place.another() as connection:
            second = GroupClient(connection, "g")
            joining = asyncio.create_task(second.enter())
            while await first.heartbeat() != E.REBALANCE_IN_PROGRESS:
                await asyncio.sleep(0.005)
            lead(place.topics, OFFSETS_TOPIC, 1, leader=2, version=1)
            assert (await joining).error_code == E.NOT_COORDINATOR
        assert await first.heartbeat() == E.NOT_COORDINATOR
        assert (await first.join()).error_code == E.NOT_COORDINATOR
        assert (await first.sync({})).error_code == E.NOT_COORDINATOR
        assert await first.leave() == (E.NOT_COORDINATOR, [])
        assert await first.commit({("t", 0): 1}) == {("t", 0): E.NOT_COORDINATOR}
        assert await first.committed({"t": [0]}) == (E.NOT_COORDINATOR, {("t", 0): (-1, E.NOT_COORDINATOR)})
        (group,) = (await place.connection.send(DescribeGroupsRequest(groups=["g"]), 5)).groups
        assert (group.error_code, group.group_state) == (E.NOT_COORDINATOR, "")
        lead(place.topics, OFFSETS_TOPIC, 2, version=2)
        await _loaded(place)
        assert await first.heartbeat() == E.NONE  # nobody else has led meanwhile


async def test_a_new_term_of_the_same_leader_is_not_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a follower has died: a round that waits goes on waiting, and nothing is read again."""
    async with life(tmp_path, 0) as place:
        first = GroupClient(place.connection, "g")
        await first.be_alone()
        monkeypatch.setattr(OffsetsLog, "read_all", None)
        async with place.another() as connection:
            second = GroupClient(connection, "g")
            joining = asyncio.create_task(second.enter())
            while await first.heartbeat() != E.REBALANCE_IN_PROGRESS:
                await asyncio.sleep(0.005)
            lead(place.topics, OFFSETS_TOPIC, 1, version=1)
            assert not place.broker.groups.is_loading
            assert (await first.join()).error_code == E.NONE
            assert (await joining).error_code == E.NONE
        alone = GroupClient(place.connection, "alone")
        assert await alone.commit({("t", 0): 7}) == {("t", 0): E.NONE}
        monkeypatch.undo()
        lead(place.topics, OFFSETS_TOPIC, 3, version=2)  # somebody else may have led term 2
        await _loaded(place)
        assert await alone.committed({"t": [0]}) == (0, {("t", 0): (7, 0)})


async def test_positions_in_deleted_topics_are_forgotten_for_good(tmp_path: Path) -> None:
    async with life(tmp_path, 0) as place:
        client = GroupClient(place.connection, "g")
        await client.commit({("t", 0): 4, ("t", 1): 5, ("u", 0): 6})
        place.topics.delete("t")
        assert await client.committed(None) == (0, {("u", 0): (6, 0)})
        # A topic that was made anew under its name is another one, even if nobody said it was deleted.
        place.topics.lead("u", b"id of a new u...", range(3), 1, leader_epoch=0)
        assert await client.committed(None) == (0, {})
    async with life(tmp_path, 1) as place:
        await _loaded(place)
        assert await GroupClient(place.connection, "g").committed(None) == (0, {})


async def test_a_topic_deleted_while_the_coordinator_loads(tmp_path: Path) -> None:
    async with life(tmp_path, 0) as place:
        await GroupClient(place.connection, "g").commit({("t", 0): 4, ("u", 0): 6})
    async with life(tmp_path, 1, leads=False) as place:
        for name in IDS:
            lead(place.topics, name, 1)
        assert place.broker.groups.is_loading
        place.topics.delete("t")
        await _loaded(place)
        client = GroupClient(place.connection, "g")
        assert await client.committed(None) == (0, {("u", 0): (6, 0)})


async def test_a_topic_deleted_while_a_damaged_partition_is_read_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with life(tmp_path, 0) as place:
        await GroupClient(place.connection, "g").commit({("t", 0): 4, ("u", 0): 6})
    failing, failed = True, asyncio.Event()
    read_all = OffsetsLog.read_all

    async def damaged(log: OffsetsLog) -> AsyncIterator[memoryview]:
        async for batches in read_all(log):
            if failing:
                failed.set()
                raise CorruptLog("no batch starts here")
            yield batches

    monkeypatch.setattr(OffsetsLog, "read_all", damaged)
    monkeypatch.setattr("broker.coordinator.shards._RETRY_S", 0.01)
    async with life(tmp_path, 1, leads=False) as place:
        for name in IDS:
            lead(place.topics, name, 1)
        await failed.wait()
        place.topics.delete("t")
        failing = False
        failed.clear()
        await _loaded(place)
        assert await GroupClient(place.connection, "g").committed(None) == (0, {("u", 0): (6, 0)})


def _records(group: str, offset: int) -> list[Record]:
    return [offset_record(group, TopicPartition("t", 0), CommittedOffset(offset, -1, "", 1), 1)]


def _marker(producer_id: int, commit: bool) -> bytes:
    record = Record(0, 1, (0).to_bytes(2, "big") + int(commit).to_bytes(2, "big"), bytes(6))
    return build_batch([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True)


async def test_records_of_others_unreadable_ones_and_transactions(tmp_path: Path) -> None:
    """Kafka's directories hold kinds of records that we never write; none of them stops the rest."""
    async with life(tmp_path, 0) as place:
        await GroupClient(place.connection, "g").commit({("t", 0): 4})
        index = place.broker.groups.partition_of("g")
        partition = place.broker.replicas.leader(OFFSETS_TOPIC, index)
        transactional = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
        batches = [
            build_batch([Record(0, 1, b"\x00\x03\x00\x01x", b"\x00\x00")], codec=Codec.ZSTD),  # KIP-848
            build_batch([Record(0, 1, b"\x00\x01\x7f", b"\x00\x03")]),  # key cut short
            build_batch([Record(0, 1, b"k", None), Record(0, 1, b"\x00\x02\x00\x01z", b"\x00\x63")]),
            build_batch(_records("committed", 1), producer_id=7, **transactional),
            build_batch(_records("aborted", 1), producer_id=8, **transactional),
            build_batch(_records("open", 1), producer_id=9, **transactional),
            _marker(7, True),
            _marker(8, False),
        ]
        for each in batches:
            partition.append(memoryview(bytearray(each)), origin=Origin.COORDINATOR)
        await GroupClient(place.connection, "g").commit({("t", 1): 5})
    async with life(tmp_path, 1) as place:
        await _loaded(place)
        client = GroupClient(place.connection, "g")
        assert await client.committed(None) == (0, {("t", 0): (4, 0), ("t", 1): (5, 0)})
        groups = {group.group_id for group in place.broker.groups.all_groups()}
        assert groups == {"g", "committed"}


async def test_commits_are_plain_records_of_the_offsets_topic(tmp_path: Path) -> None:
    async with life(tmp_path, 0) as place:
        await GroupClient(place.connection, "g").commit({("t", 0): 4}, metadata="hello")
        index = place.broker.groups.partition_of("g")
        request: FetchRequest = place.fetch_request(OFFSETS_TOPIC, 0, partitions=[index])
        ((answer,),) = (each.partitions for each in (await place.fetch_all(request)).responses)
        (record,) = decode_batches(bytes(answer.records))
        assert record.key == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"
        assert record.value is not None
        assert record.value[:12] == b"\x00\x03" + (4).to_bytes(8, "big") + b"\xff\xff"
        assert record.value[14:21] == b"\x00\x05hello"
        assert len(IDS) == 3
        assert index < PARTITIONS


async def test_offsets_of_an_open_transaction_are_deleted_with_their_group(tmp_path: Path) -> None:
    """A commit after a restart must not bring back what was deleted before it."""
    position = CommittedOffset(5, -1, "", 0)
    producer = (77, 0)
    async with life(tmp_path, 0) as place:
        offsets = place.broker.groups.offsets
        for group in ("g", "h"):
            code = await offsets.commit_in_transaction(
                group, "", None, -1, producer, {TopicPartition("t", 0): position}
            )
            assert code == E.NONE
        assert await offsets.delete_group("g") == E.NONE
        assert await offsets.delete("h", [TopicPartition("t", 0)]) == E.NONE
    async with life(tmp_path, 1) as place:
        await _loaded(place)
        offsets = place.broker.groups.offsets
        for index in range(PARTITIONS):
            offsets.on_transaction_end(index, producer[0], True)
        assert offsets.fetch("g", None) == offsets.fetch("h", None) == ({}, set())
