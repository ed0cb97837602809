"""`links check` finds a transaction that no coordinator knows, and no other; Kafka's tool ends it as it says.

Made as in `test_hanging_transactions`, at Apache Kafka.
"""

import asyncio
import shlex

import confluent_kafka
import pytest

from protocol.client import ClusterClient, NewTopic
from protocol.errors import ErrorCode
from protocol.types import TopicPartition
from replicator.hanging import hanging
from replicator.preflight import Level, check_link
from replicator.settings import LinkSettings
from tests.cluster.links import two_brokers
from tests.support.apache_kafka import apache_kafka, kafka_tool
from tests.support.sides import Side
from tests.support.slow import slow
from tests.support.transactions_v2 import BOUND_S, Identity, RawProducer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600), slow("starts Apache Kafka and its tool")]


async def test_a_living_one_is_no_finding_and_a_forgotten_one_is(zookeeper_server, tmp_path):
    verification = "transaction.partition.verification.enable=false"
    with apache_kafka("hanging", verification) as east, two_brokers(zookeeper_server, tmp_path) as pair:
        link = LinkSettings.model_validate(
            {
                "source": {"alias": "east", "bootstrap": east},
                "target": {"alias": "west", "bootstrap": pair.west},
                "topics": ["orders"],
            }
        )
        async with ClusterClient(east) as source, ClusterClient(pair.west) as target:
            await source.create_topics([NewTopic("orders", 2, 1)])

            async def found():
                findings = await check_link(source, target, link)
                return [one for one in findings if one.check == "hanging transactions"]

            living = confluent_kafka.Producer({"bootstrap.servers": east, "transactional.id": "living"})
            await asyncio.to_thread(living.init_transactions, 60)
            living.begin_transaction()
            for partition in (0, 1):
                living.produce("orders", b"open", partition=partition)
            await asyncio.to_thread(living.flush, 30)
            assert await found() == []
            connection = await Side(east, None, tmp_path).connect()
            lost = RawProducer(connection, "nobody")
            lost.identity = Identity(12_345, 3)
            async with asyncio.timeout(BOUND_S):
                while await lost.produce("orders", "a", 0, version=9) is not ErrorCode.NONE:
                    await asyncio.sleep(0.05)  # the leader does not know it yet
            await connection.close()
            (one,) = await found()
            assert (one.level, one.subjects) == (Level.WARNING, ("orders-0",))
            assert "no coordinator that this user may ask knows its producer" in one.what
            command, _, _ = one.to_do.partition(". ")
            words = shlex.split(command)
            assert words[0] == "kafka-transactions.sh"
            await asyncio.to_thread(
                kafka_tool, "org.apache.kafka.tools.TransactionsCommand", *words[1:], timeout=180
            )
            assert await found() == []
            await asyncio.to_thread(living.commit_transaction, 30)
            tps = [TopicPartition("orders", n) for n in (0, 1)]
            assert await hanging(source, [1], tps) == []
