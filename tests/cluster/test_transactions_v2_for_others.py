"""What others see of transactions of version 2 (KIP-890): groups, readers, lists, late markers, the log of
transactions. Compared with Apache Kafka (ISTHMUS_ORACLE=1).
"""

import asyncio
import time
from collections.abc import Iterator

import pytest

from broker.coordinator.transactions.states import TxnState
from protocol.client import Connection
from protocol.codec import decode
from protocol.errors import ErrorCode
from protocol.messages.describe_groups_request import DescribeGroupsRequest
from protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator_request import FindCoordinatorRequest
from protocol.messages.init_producer_id_request import InitProducerIdRequest
from protocol.messages.list_transactions_request import ListTransactionsRequest
from protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.transaction_log_value import TransactionLogValue
from protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.records import Record, build_batch, iter_headers, read_records
from tests.support.sides import SIDES, Side, StartSide
from tests.support.transactions import raw_fetch
from tests.support.transactions_v2 import (
    BOUND_S,
    SETTINGS,
    V1,
    Identity,
    RawProducer,
    committed,
    create,
    raw_producer,
)

pytestmark = pytest.mark.cluster
TRANSACTIONS = "__transaction_state"
NONE = ErrorCode.NONE


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "txn-v2-others", SETTINGS) as side:
        yield side


async def test_offsets_join_without_adding_their_group(side: Side) -> None:
    await create(side, "positions")
    async with raw_producer(side, "positions") as made:
        await made.begin()

        async def commit(offset: int, identity: Identity) -> ErrorCode:
            partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            request = TxnOffsetCommitRequest(
                transactional_id=made.name,
                group_id="positions",
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                topics=[TxnOffsetCommitRequestTopic(name="positions", partitions=[partition])],
            )
            async with asyncio.timeout(BOUND_S):
                while True:
                    answer = await made.connection.send(request, 5)
                    code = ErrorCode(answer.topics[0].partitions[0].error_code)
                    if code not in (
                        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                        ErrorCode.NOT_COORDINATOR,
                        ErrorCode.COORDINATOR_NOT_AVAILABLE,
                        ErrorCode.CONCURRENT_TRANSACTIONS,
                    ):
                        return code
                    await asyncio.sleep(0.05)

        await group_is_ready(made.connection, "positions")
        before = made.identity
        assert await commit(7, before) is NONE
        assert (await made.end(True)).code is NONE
        assert await commit(8, made.identity) is NONE
        assert (await made.end(False)).code is NONE
        assert await commit(9, before) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await position(made.connection, "positions") == 7


async def group_is_ready(connection: Connection, group: str) -> None:
    async with asyncio.timeout(BOUND_S):
        while (await connection.send(FindCoordinatorRequest(key=group, key_type=0), 3)).error_code:
            await asyncio.sleep(0.05)


async def position(connection: Connection, group: str) -> int:
    """The stable position in partition 0 of the topic of the same name."""
    topics = [OffsetFetchRequestTopics(name=group, partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True
    )
    async with asyncio.timeout(BOUND_S):
        while True:
            answer = await connection.send(request, 8)
            found = answer.groups[0].topics[0].partitions[0]
            if found.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                assert found.error_code == 0
                return int(found.committed_offset)
            await asyncio.sleep(0.05)


async def test_a_late_marker_does_not_end_the_next_transaction(side: Side) -> None:
    """KIP-1228: the marker of the first transaction comes once more, when the second one is open."""
    await create(side, "marker")
    async with raw_producer(side, "marker") as made:
        await made.begin()
        assert await made.produce("marker", "a", 0) is NONE
        assert (await made.end(True)).code is NONE
        assert await made.produce("marker", "b", 0) is NONE
        marker = WritableTxnMarker(
            producer_id=made.identity.producer_id,
            producer_epoch=made.identity.epoch,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="marker", partition_indexes=[0])],
            coordinator_epoch=10,
            transaction_version=2,
        )
        answer = await made.connection.send(WriteTxnMarkersRequest(markers=[marker]), 2)
        result = answer.markers[0].topics[0].partitions[0]
        assert result.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await made.end(False)).code is NONE
    assert await committed(side, "marker", "a") == ["a"]


@pytest.mark.parametrize("version", [9, 12])
async def test_one_transactional_batch_without_an_id_refuses_the_whole_request(
    side: Side, version: int
) -> None:
    topics = [f"whole-{version}-{n}" for n in range(2)]
    await create(side, *topics)
    connection = await side.connect()
    try:
        producer = await connection.send(InitProducerIdRequest(transactional_id=None), 4)
        records = [Record(0, time.time_ns() // 1_000_000, None, b"v", [])]
        transactional = build_batch(
            records,
            producer_id=producer.producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)])
                for name, batch in zip(topics, [build_batch(records), transactional], strict=True)
            ],
        )
        answer = await connection.send(request, version)
        found = [
            (each.error_code, each.base_offset)
            for topic in answer.responses
            for each in topic.partition_responses
        ]
        assert found == [(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)] * 2
        for name in topics:
            assert (await raw_fetch(connection, name, 12, "read_uncommitted")).high_watermark == 0
    finally:
        await connection.close()


async def test_readers_wait_for_what_a_marker_makes_readable(side: Side) -> None:
    """`fetch.min.bytes` counts what read_committed readers can read from now on, not the marker alone."""
    await create(side, "waiting")
    async with raw_producer(side, "waiting") as made:
        await made.begin()
        assert await made.produce("waiting", "a" * 5000, 0) is NONE
        connection = await side.connect()
        try:
            partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=120_000,
                min_bytes=4000,
                max_bytes=1 << 20,
                isolation_level=1,
                topics=[FetchTopic(topic="waiting", partitions=[partition])],
            )
            waiting = asyncio.create_task(connection.send(request, 12, timeout_s=130))
            await connection_is_busy(side, "waiting")
            assert not waiting.done()
            assert (await made.end(True)).code is NONE
            async with asyncio.timeout(BOUND_S):
                answer = await waiting
            assert answer.responses[0].partitions[0].last_stable_offset == 2
        finally:
            await connection.close()


async def test_transactions_are_listed_by_a_pattern(side: Side) -> None:
    """KIP-1152: it has to fit the whole id."""
    connection = await side.connect()
    try:
        for name in ("listed-1", "listed-22", "other-listed-3"):
            await RawProducer(connection, name).begin()

        async def listed(pattern: str | None) -> tuple[int, list[str]]:
            request = ListTransactionsRequest(transactional_id_pattern=pattern)
            answer = await connection.send(request, 2)
            return answer.error_code, sorted(each.transactional_id for each in answer.transaction_states)

        assert await listed("listed-[0-9]+") == (0, ["listed-1", "listed-22"])
        assert await listed("listed") == (0, [])
        assert await listed(".*listed-[13]") == (0, ["listed-1", "other-listed-3"])
        for everything in (None, ""):
            assert len((await listed(everything))[1]) >= 3
        assert await listed("(") == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])
    finally:
        await connection.close()


async def test_an_unknown_group_is_described_as_not_found_from_version_6_on(side: Side) -> None:
    connection = await side.connect()
    try:
        await group_is_ready(connection, "nobody")
        for version, code in ((5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
            async with asyncio.timeout(BOUND_S):
                while True:
                    answer = await connection.send(DescribeGroupsRequest(groups=["nobody"]), version)
                    found = answer.groups[0]
                    if found.error_code not in (
                        ErrorCode.NOT_COORDINATOR,
                        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    ):
                        break
                    await asyncio.sleep(0.05)
            assert (found.error_code, found.group_state) == (code, "Dead")
            assert bool(found.error_message) is (version >= 6)
    finally:
        await connection.close()


async def connection_is_busy(side: Side, topic: str) -> None:
    """A few round trips over another connection: what was sent before them has arrived."""
    connection = await side.connect()
    try:
        for _ in range(20):
            await raw_fetch(connection, topic, 12, "read_committed")
    finally:
        await connection.close()


async def stored(connection: Connection, name: str) -> list[TransactionLogValue]:
    """What the transaction log says of an id, oldest first; all are of value version 1."""
    found = await raw_fetch(connection, TRANSACTIONS, 12, "read_uncommitted", max_bytes=64 << 20)
    assert isinstance(found.records, bytes | memoryview)
    view = memoryview(found.records)
    values = []
    for at, header in iter_headers(view):
        for record in read_records(view, at, header):
            assert record.key is not None
            if record.value is None or not record.key.endswith(name.encode()):
                continue
            assert record.value[:2] == b"\0\1"
            values.append(decode(TransactionLogValue, 1, record.value, 2))
    return values


async def test_what_is_stored_of_it(side: Side) -> None:
    """(state, epoch, version of the client, previous id is the id, next id, partitions, has begun)"""
    await create(side, "stored")
    async with raw_producer(side, "is-stored") as made:
        await made.begin()
        producer_id = made.identity.producer_id
        assert await made.produce("stored", "a", 0) is NONE
        assert (await made.end(True)).code is NONE
        assert (await made.end(False)).code is NONE
        assert await until_idle(made) is NONE
        assert await made.add("stored") is NONE
        assert (await made.end(False, version=V1)).code is NONE
        async with asyncio.timeout(BOUND_S):
            while True:
                values = await stored(made.connection, "is-stored")
                if len(values) >= 9 and values[-1].transaction_status == TxnState.COMPLETE_ABORT:
                    break
                await asyncio.sleep(0.05)
    assert {value.producer_id for value in values} == {producer_id}
    found = [
        (
            TxnState(value.transaction_status).name,
            value.producer_epoch,
            value.client_transaction_version,
            value.previous_producer_id == producer_id,
            value.next_producer_id,
            [(each.topic, each.partition_ids) for each in value.transaction_partitions or ()],
            value.transaction_start_timestamp_ms > 0,
        )
        for value in values
    ]
    partitions = [("stored", [0])]
    assert found == [
        ("EMPTY", 0, 0, True, -1, [], False),
        ("ONGOING", 0, 2, True, -1, partitions, True),
        ("PREPARE_COMMIT", 1, 2, True, -1, partitions, True),
        ("COMPLETE_COMMIT", 1, 2, True, -1, [], True),
        ("PREPARE_ABORT", 2, 2, True, -1, [], True),
        ("COMPLETE_ABORT", 2, 2, True, -1, [], True),
        ("ONGOING", 2, 0, True, -1, partitions, True),
        ("PREPARE_ABORT", 2, 0, True, -1, partitions, True),
        ("COMPLETE_ABORT", 2, 0, True, -1, [], True),
    ]


async def until_idle(made: RawProducer) -> ErrorCode:
    """Repeats the last end until nothing of it is under way."""
    before = Identity(made.identity.producer_id, made.identity.epoch - 1)
    return (await made.end(False, identity=before, follow=False)).code
