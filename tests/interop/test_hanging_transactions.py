"""kafka-transactions finds a transaction that no coordinator knows and aborts it (KIP-664).

Made by a batch of a producer that nobody has initialized, with the check of such batches switched off. Three
starts of a JVM: with ISTHMUS_SLOW=1 only. Compared with Apache Kafka (ISTHMUS_ORACLE=1).
"""

import asyncio
import time
from collections.abc import Iterator

import pytest

from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode
from tests.support.apache_kafka import kafka_tool
from tests.support.sides import SIDES, Side, StartSide
from tests.support.slow import slow
from tests.support.transactions import raw_fetch, read_to_end
from tests.support.transactions_v2 import BOUND_S, Identity, RawProducer

pytestmark = [
    pytest.mark.interop,
    slow("starts Java"),
]
SETTINGS = {"transaction.partition.verification.enable": "false"}
AN_HOUR_MS = 3_600_000


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "txn-hanging", SETTINGS) as side:
        yield side


def transactions(side: Side, *arguments: str) -> list[list[str]]:
    """What the tool prints below its header."""
    said = kafka_tool(
        "org.apache.kafka.tools.TransactionsCommand",
        "--bootstrap-server",
        side.bootstrap,
        *arguments,
        timeout=180,
    )
    return [line.split() for line in said.splitlines()[1:]]


@pytest.mark.timeout(600)
async def test_it_is_found_and_aborted(side: Side) -> None:
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics([NewTopic("hanging", 1, 1)])
    connection = await side.connect()
    try:
        lost = RawProducer(connection, "nobody")
        lost.identity = Identity(12_345, 3)
        old_ms = time.time_ns() // 1_000_000 - AN_HOUR_MS
        async with asyncio.timeout(BOUND_S):
            while await lost.produce("hanging", "a", 0, version=9, timestamp_ms=old_ms) is not ErrorCode.NONE:
                await asyncio.sleep(0.05)  # the leader does not know it yet
        found = await raw_fetch(connection, "hanging", 12, "read_committed")
        assert (found.last_stable_offset, found.high_watermark) == (0, 1)
        search = ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "15")
        (row,) = await asyncio.to_thread(transactions, side, *search)
        assert row[:6] == ["hanging", "0", "12345", "3", "-1", "0"]
        where = ("--topic", "hanging", "--partition", "0", "--start-offset", "0")
        await asyncio.to_thread(transactions, side, "abort", *where)
        found = await raw_fetch(connection, "hanging", 12, "read_committed")
        assert (found.last_stable_offset, found.high_watermark) == (2, 2)
    finally:
        await connection.close()
    assert (await asyncio.to_thread(read_to_end, side.bootstrap, "hanging", "read_committed"))[0] == []
    assert await asyncio.to_thread(transactions, side, *search) == []
