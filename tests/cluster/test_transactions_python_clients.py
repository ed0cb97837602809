"""kafka-python and aiokafka as transactional producers. Compared with Apache Kafka (ISTHMUS_ORACLE=1)."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from tests.support.sides import SIDES, Side, StartSide
from tests.support.transactions import TIMEOUT_S, read_until

pytestmark = pytest.mark.cluster
ROUNDS = 3
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "txn-python", {}) as side:
        yield side


@pytest.mark.parametrize("client", ["kafka-python", "aiokafka"])
async def test_commits_and_aborts_by_turns(side: Side, client: str) -> None:
    async with ClusterClient(side.bootstrap) as cluster:
        await cluster.create_topics([NewTopic(client, 1, 1)])
    arguments = ("-m", "tests.support.python_transactions", client, side.bootstrap, client, str(ROUNDS))
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    expected = [f"{number}-True" for number in range(ROUNDS)]
    found = await asyncio.to_thread(
        read_until, side.bootstrap, client, "read_committed", lambda found: len(found) >= ROUNDS
    )
    assert found == expected
    assert await asyncio.to_thread(position, side.bootstrap, client) == ROUNDS


def position(bootstrap: str, name: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    try:
        return int(consumer.committed([TopicPartition(name, 0)], TIMEOUT_S)[0].offset)
    finally:
        consumer.close()
