"""Transactions of version 2 (KIP-890), request by request: each end raises the epoch, so what comes late is
known as late. Compared with Apache Kafka (ISTHMUS_ORACLE=1).
"""

import asyncio
import time
from collections.abc import Iterator

import pytest

from broker.coordinator.transactions.states import TxnState
from protocol.client import Connection
from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.codec import decode
from protocol.errors import ErrorCode
from protocol.messages.api_versions_request import ApiVersionsRequest
from protocol.messages.describe_groups_request import DescribeGroupsRequest
from protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator_request import FindCoordinatorRequest
from protocol.messages.init_producer_id_request import InitProducerIdRequest
from protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
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
from tests.support.transactions import raw_fetch, read_until
from tests.support.transactions_v2 import BOUND_S, V1, Identity, RawProducer, raw_producer

pytestmark = pytest.mark.cluster
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "300"}
TRANSACTIONS = "__transaction_state"
NONE = ErrorCode.NONE


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "txn-v2", SETTINGS) as side:
        yield side


async def create(side: Side, *topics: str) -> None:
    """Make topics and wait until their leader knows it."""
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics([NewTopic(topic, 1, 1) for topic in topics])
    connection = await side.connect()
    try:
        async with asyncio.timeout(BOUND_S):
            for topic in topics:
                partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
                request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
                while (await connection.send(request, 6)).topics[0].partitions[0].error_code:
                    await asyncio.sleep(0.05)
    finally:
        await connection.close()


async def committed(side: Side, topic: str, *values: str) -> list[str]:
    """What read_committed readers find, once it is as long as `values`."""

    def done(found: list[str]) -> bool:
        return len(found) >= len(values)

    return await asyncio.to_thread(read_until, side.bootstrap, topic, "read_committed", done)


@pytest.mark.parametrize("version", [3, 4])
async def test_clients_read_the_level_in_api_versions(side: Side, version: int) -> None:
    connection = await side.connect()
    try:
        request = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")
        answer = await connection.send(request, version)
    finally:
        await connection.close()
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    assert finalized["transaction.version"] == 2
    assert answer.finalized_features_epoch >= 0
    assert supported.get("transaction.version") == ((0, 2) if version >= 4 else None), "KAFKA-17492"


async def test_a_course_without_adding_partitions(side: Side) -> None:
    await create(side, "course")
    async with raw_producer(side, "course") as made:
        first = await made.begin()
        assert await made.produce("course", "a", 0) is NONE
        assert await made.produce("course", "b", 1) is NONE
        assert await made.end(True) == (NONE, first.producer_id, first.epoch + 1)
        assert await made.produce("course", "c", 0) is NONE
        assert await made.end(False) == (NONE, first.producer_id, first.epoch + 2)
        assert await made.produce("course", "d", 0) is NONE
        assert (await made.end(True)).code is NONE
    assert await committed(side, "course", "a", "b", "d") == ["a", "b", "d"]


@pytest.mark.parametrize("commit", [True, False])
async def test_a_repeated_end_is_answered_alike_and_its_opposite_refused(side: Side, commit: bool) -> None:
    topic = f"repeated-{commit}"
    await create(side, topic)
    async with raw_producer(side, topic) as made:
        before = await made.begin()
        assert await made.produce(topic, "a", 0) is NONE
        answers = [await made.end(commit, identity=before) for _ in range(3)]
        assert answers == [(NONE, before.producer_id, before.epoch + 1)] * 3
        refused = await made.end(not commit, identity=before)
        assert refused == (ErrorCode.INVALID_TXN_STATE, -1, -1)


@pytest.mark.parametrize("commit", [True, False])
async def test_a_late_end_never_ends_the_next_transaction(side: Side, commit: bool) -> None:
    """KAFKA-17754, over whatever connection it comes."""
    topic = f"late-{commit}"
    await create(side, topic)
    async with raw_producer(side, topic) as made, raw_producer(side, topic) as late:
        before = await made.begin()
        assert await made.produce(topic, "a", 0) is NONE
        assert (await made.end(commit)).code is NONE
        assert await made.produce(topic, "b", 0) is NONE
        for each in (made, late):
            found = await each.end(commit, identity=before, follow=False)
            assert found.code is ErrorCode.PRODUCER_FENCED
        connection = await side.connect()
        try:
            open_ = await raw_fetch(connection, topic, 12, "read_committed")
            assert open_.last_stable_offset < open_.high_watermark
        finally:
            await connection.close()
        assert (await made.end(True)).code is NONE
    expected = ["a", "b"] if commit else ["b"]
    assert await committed(side, topic, *expected) == expected


async def test_a_late_batch_is_refused(side: Side) -> None:
    await create(side, "late-batch")
    async with raw_producer(side, "late-batch") as made:
        before = await made.begin()
        assert await made.produce("late-batch", "a", 0) is NONE
        assert (await made.end(True)).code is NONE
        assert (await made.end(True, identity=before)).code is NONE, "answered once the markers are written"
        late = await made.produce("late-batch", "b", 1, identity=before)
        assert late is ErrorCode.INVALID_PRODUCER_EPOCH
        ahead = Identity(made.identity.producer_id, made.identity.epoch + 1)
        assert await made.produce("late-batch", "c", 0, identity=ahead) is ErrorCode.INVALID_PRODUCER_EPOCH
        stranger = Identity(made.identity.producer_id + 500_000, 0)
        found = await made.produce("late-batch", "d", 0, identity=stranger)
        assert found is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await committed(side, "late-batch", "a") == ["a"]


async def test_nothing_may_be_aborted_and_not_committed(side: Side) -> None:
    await create(side, "nothing")
    async with raw_producer(side, "nothing") as made:
        start = await made.begin()
        assert (await made.end(True)).code is ErrorCode.INVALID_TXN_STATE
        assert await made.end(False) == (NONE, start.producer_id, start.epoch + 1)
        assert (await made.end(True)).code is ErrorCode.INVALID_TXN_STATE
        assert await made.end(False) == (NONE, start.producer_id, start.epoch + 2)
        before = made.identity
        assert await made.produce("nothing", "a", 0) is NONE
        assert (await made.end(True)).code is NONE
        assert (await made.end(False, identity=before)).code is ErrorCode.INVALID_TXN_STATE
        assert await made.end(False) == (NONE, start.producer_id, start.epoch + 4)
        ahead = Identity(start.producer_id, made.identity.epoch + 1)
        assert (await made.end(False, identity=ahead)).code is ErrorCode.PRODUCER_FENCED
        stranger = Identity(start.producer_id + 500_000, 0)
        assert (await made.end(False, identity=stranger)).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_producers_of_version_1_go_on_as_before(side: Side) -> None:
    await create(side, "old")
    async with raw_producer(side, "old") as made:
        start = await made.begin()
        for number in range(2):
            assert await made.add("old") is NONE
            assert await made.produce("old", str(number), number, version=9) is NONE
            assert (await made.end(True, version=V1)).code is NONE
        assert made.identity == start
        assert (await made.end(True, version=V1)).code is NONE, "repeated"
        assert (await made.end(False, version=V1)).code is ErrorCode.INVALID_TXN_STATE
        # The same id, by a client of version 2 from now on, and back again.
        assert await made.produce("old", "2", 2) is NONE
        assert await made.end(True) == (NONE, start.producer_id, start.epoch + 1)
        assert await made.add("old") is NONE
        assert await made.produce("old", "3", 0, version=9) is NONE
        assert (await made.end(True, version=V1)).code is NONE
    assert await committed(side, "old", "0", "1", "2", "3") == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("version", "code"),
    [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)],
)
async def test_batches_of_version_1_need_their_partition_added(
    side: Side, version: int, code: ErrorCode
) -> None:
    topic = f"unadded-{version}"
    await create(side, topic, topic + "-other")
    async with raw_producer(side, topic) as made:
        await made.begin()
        assert await made.produce(topic, "a", 0, version=version) is code
        assert await made.add(topic + "-other") is NONE
        assert await made.produce(topic, "a", 0, version=version) is code
        assert await made.add(topic) is NONE
        assert await made.produce(topic, "a", 0, version=version) is NONE
        assert (await made.end(False, version=V1)).code is NONE


async def test_a_new_instance_ends_an_open_transaction(side: Side) -> None:
    """That takes one epoch, the next instance has the second."""
    await create(side, "taken")
    async with raw_producer(side, "taken") as old, raw_producer(side, "taken") as new:
        start = await old.begin()
        assert await old.produce("taken", "a", 0) is NONE
        assert await new.try_init() is ErrorCode.CONCURRENT_TRANSACTIONS
        assert await new.begin() == (start.producer_id, start.epoch + 2)
        assert (await old.end(True)).code is ErrorCode.PRODUCER_FENCED
        assert await old.produce("taken", "b", 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.try_init(expected=old.identity) is ErrorCode.PRODUCER_FENCED
        assert await new.produce("taken", "c", 0) is NONE
        assert (await new.end(True)).code is NONE
    assert await committed(side, "taken", "c") == ["c"]


async def test_the_same_instance_may_ask_for_an_epoch_after_an_end(side: Side) -> None:
    """KIP-360: it does not know whether its end was decided, and asks with the epoch it has."""
    await create(side, "asks")
    async with raw_producer(side, "asks") as made:
        before = await made.begin()
        assert await made.produce("asks", "a", 0) is NONE
        assert (await made.end(True)).code is NONE
        assert await made.begin(expected=before) == made.identity
        assert await made.begin(expected=made.identity) == (before.producer_id, before.epoch + 2)


async def test_what_lasts_too_long_is_ended(side: Side) -> None:
    await create(side, "slow")
    async with raw_producer(side, "slow") as made:
        start = await made.begin(timeout_ms=500)
        assert await made.produce("slow", "a", 0) is NONE
        connection = await side.connect()
        try:
            async with asyncio.timeout(BOUND_S):
                while True:
                    found = await raw_fetch(connection, "slow", 12, "read_committed")
                    if found.last_stable_offset == found.high_watermark == 2:
                        break
                    await asyncio.sleep(0.05)
        finally:
            await connection.close()
        assert (await made.end(True)).code is ErrorCode.INVALID_TXN_STATE
        assert await made.produce("slow", "b", 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await made.end(False) == (NONE, start.producer_id, start.epoch + 1)
        assert await made.produce("slow", "c", 0) is NONE
        assert (await made.end(True)).code is NONE
        assert await made.begin() == (start.producer_id, start.epoch + 3)
    assert await committed(side, "slow", "c") == ["c"]


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
