"""Transactional ids that are quiet are forgotten (`transactional.id.expiration.ms`), for good. Compared with
Apache Kafka (ISTHMUS_ORACLE=1).
"""

import asyncio
from collections.abc import Iterator

import pytest

from protocol.client import Connection
from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode
from protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from tests.support.sides import SIDES, Side, StartSide
from tests.support.transactions_v2 import BOUND_S, RawProducer, raw_producer

pytestmark = pytest.mark.cluster
SETTINGS = {
    "transactional.id.expiration.ms": "1500",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
}


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "txn-expiry", SETTINGS) as side:
        yield side


async def described(connection: Connection, name: str) -> tuple[ErrorCode, str]:
    answer = await connection.send(DescribeTransactionsRequest(transactional_ids=[name]), 0)
    found = answer.transaction_states[0]
    return ErrorCode(found.error_code), found.transaction_state


async def test_a_quiet_id_is_forgotten_and_an_open_one_is_not(side: Side) -> None:
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics([NewTopic("expiry", 1, 1)])
    async with raw_producer(side, "quiet") as quiet, raw_producer(side, "open") as busy:
        first = await quiet.begin()
        assert (await quiet.end(False)).code is ErrorCode.NONE
        await busy.begin()
        async with asyncio.timeout(BOUND_S):
            while await busy.produce("expiry", "a", 0) is not ErrorCode.NONE:
                await asyncio.sleep(0.05)  # the leader does not know it yet
            while await described(quiet.connection, "quiet") != (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ""):
                await asyncio.sleep(0.05)
        assert (await quiet.end(False)).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await described(busy.connection, "open") == (ErrorCode.NONE, "Ongoing")
        assert (await busy.end(True)).code is ErrorCode.NONE
    if side.broker is not None:  # forgotten ids do not come back from the log
        side.broker.kill()
        side.broker.start()
    async with raw_producer(side, "quiet") as quiet:
        await until_loaded(quiet)
        assert (await described(quiet.connection, "quiet"))[0] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        again = await quiet.begin()
        assert again.producer_id != first.producer_id
        assert again.epoch == 0


async def until_loaded(made: RawProducer) -> None:
    async with asyncio.timeout(BOUND_S):
        while (await described(made.connection, made.name))[0] in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ):
            await asyncio.sleep(0.05)
