"""Transactions of real clients against a broker process: exactly once over SIGKILL, fencing, late ends."""

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from protocol.client import Connection
from protocol.client.cluster import ClusterClient
from protocol.client.errors import ConnectionLostError
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.end_txn_request import EndTxnRequest
from protocol.messages.find_coordinator_request import FindCoordinatorRequest
from protocol.messages.init_producer_id_request import InitProducerIdRequest
from tests.support.copier import copied
from tests.support.sides import OURS, Side, StartSide
from tests.support.transactions import producer, read_until, write

pytestmark = pytest.mark.cluster
RECORDS = 60
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "300"}


@pytest.fixture(scope="module")
def side(start_side: StartSide) -> Iterator[Side]:
    with start_side(OURS, "txn-clients", SETTINGS) as side:
        yield side


async def create(side: Side, *topics: str) -> None:
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics([NewTopic(topic, 1, 1) for topic in topics])


async def test_exactly_once_over_kills(side: Side) -> None:
    assert side.broker is not None
    await create(side, "in", "out")
    values = [f"{n:03}" for n in range(RECORDS)]
    plain = Producer({"bootstrap.servers": side.bootstrap})
    await asyncio.to_thread(write, plain, "in", *values)
    for _ in range(2):
        copying = asyncio.create_task(asyncio.to_thread(copied, side.bootstrap, RECORDS // 3))
        await asyncio.to_thread(
            read_until, side.bootstrap, "out", "read_committed", lambda values: bool(values)
        )
        side.broker.kill()
        side.broker.start()  # not in a thread: the broker ends with the thread that started it
        await copying  # a client that gave up, or had to be killed, is begun again
    for _ in range(10):
        if await asyncio.to_thread(copied, side.bootstrap, RECORDS) == 0:
            break
    found = await asyncio.to_thread(
        read_until, side.bootstrap, "out", "read_committed", lambda found: len(found) >= RECORDS
    )
    assert found == values


async def test_a_second_instance_fences_the_first(side: Side) -> None:
    await create(side, "fenced")
    first = await asyncio.to_thread(producer, side.bootstrap, "same")
    first.begin_transaction()
    await asyncio.to_thread(write, first, "fenced", "never")
    second = await asyncio.to_thread(producer, side.bootstrap, "same")
    with pytest.raises(KafkaException) as caught:
        await asyncio.to_thread(first.commit_transaction, 20)
    assert caught.value.args[0].fatal()
    second.begin_transaction()
    await asyncio.to_thread(write, second, "fenced", "seen")
    await asyncio.to_thread(second.commit_transaction, 20)
    found = await asyncio.to_thread(read_until, side.bootstrap, "fenced", "read_committed", lambda v: bool(v))
    assert found == ["seen"]


async def test_what_lasts_too_long_is_aborted(side: Side) -> None:
    await create(side, "slow")
    slow = await asyncio.to_thread(producer, side.bootstrap, "slow", transaction_timeout_ms=1000)
    slow.begin_transaction()
    await asyncio.to_thread(write, slow, "slow", "never")
    other = await asyncio.to_thread(producer, side.bootstrap, "other")
    other.begin_transaction()
    await asyncio.to_thread(write, other, "slow", "seen")
    await asyncio.to_thread(other.commit_transaction, 20)
    found = await asyncio.to_thread(read_until, side.bootstrap, "slow", "read_committed", lambda v: bool(v))
    assert found == ["seen"]


async def coordinated(connection: Connection, name: str) -> tuple[int, int]:
    """A producer's id and epoch, once the coordinator is ready."""
    async with asyncio.timeout(30):
        while True:
            await connection.send(FindCoordinatorRequest(key=name, key_type=1), 3)
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            answer = await connection.send(request, 4)
            if not answer.error_code:
                return answer.producer_id, answer.producer_epoch
            await asyncio.sleep(0.05)


async def test_a_late_end_does_not_end_the_next_transaction(side: Side) -> None:
    """KAFKA-17754: EndTxn over a connection that its producer has given up."""
    await create(side, "late")
    old, new = await side.connect(), await side.connect()
    try:
        producer_id, epoch = await coordinated(old, "late")

        def add(index: int = 0) -> AddPartitionsToTxnRequest:
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="late",
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="late", partitions=[index])],
            )

        end = EndTxnRequest(
            transactional_id="late", producer_id=producer_id, producer_epoch=epoch, committed=True
        )

        async def added(connection: Connection) -> None:
            async with asyncio.timeout(30):
                while True:
                    answer = await connection.send(add(), 3)
                    code = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
                    if code.partition_error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                        assert code.partition_error_code == 0
                        return

        await added(old)
        assert (await new.send(end, 3)).error_code == 0
        await added(new)
        with pytest.raises(ConnectionLostError):
            await old.send(end, 3)
        assert (await new.send(end, 3)).error_code == 0  # still open: the late one did nothing
    finally:
        await old.close()
        await new.close()
