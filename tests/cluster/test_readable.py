"""What a leader tells of transactions that hide what was committed there: open ones, and aborted ones."""

import asyncio
import contextlib

import confluent_kafka
import pytest

from protocol.client import LATEST, ClusterClient, Isolation
from protocol.errors import KafkaError
from protocol.types import TopicPartition
from tests.cluster.links import create, eventually, fresh, produce, some
from tests.support.apache_kafka import apache_kafka
from tests.support.broker import BrokerProcess
from tests.support.zookeeper import fresh_chroot
from transfer.kafka.readable import seen_until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(
    params=[
        pytest.param("isthmus", marks=pytest.mark.cluster),
        pytest.param("apache", marks=pytest.mark.interop),
    ]
)
def bootstrap(request, zookeeper_server, tmp_path):
    with contextlib.ExitStack() as stack:
        if request.param == "apache":
            yield stack.enter_context(apache_kafka(fresh("readable")))
            return
        broker = BrokerProcess(tmp_path / "broker", fresh_chroot(zookeeper_server), 1)
        stack.callback(broker.kill)
        broker.start()
        yield broker.bootstrap


async def test_what_hides_records_is_named_with_its_beginning(bootstrap):
    topic = fresh("readable")
    tp = TopicPartition(topic, 0)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    async with ClusterClient(bootstrap) as client:

        async def write():
            producer.begin_transaction()
            for _ in range(3):
                producer.produce(topic, b"v" * 2000, partition=0)
                await asyncio.to_thread(producer.flush, 30)  # a batch each

        async def stable(offset):
            async def reached():
                found = await client.offset(tp, LATEST, isolation=Isolation.READ_COMMITTED)
                return found.offset == offset

            await eventually(reached, f"all is readable up to {offset}")

        await create(client, topic)
        await asyncio.to_thread(producer.init_transactions, 30)
        await produce(client, topic, some(4))  # 0 to 3
        assert await seen_until(client, tp, 4) == (4, False)
        await write()  # 4 to 6
        await produce(client, topic, some(2))  # 7, 8
        assert [await seen_until(client, tp, end) for end in (4, 5, 7, 9)] == [(4, True)] * 4
        await asyncio.to_thread(producer.abort_transaction, 30)  # its marker is at 9
        await stable(10)
        assert [await seen_until(client, tp, end) for end in (4, 5, 7, 9, 10)] == [(4, False)] * 5
        await write()  # 10 to 12
        await asyncio.to_thread(producer.commit_transaction, 30)  # 13
        await stable(14)
        assert [(await seen_until(client, tp, end)).until for end in (11, 13, 14)] == [11, 13, 14]
        with pytest.raises(KafkaError):
            await seen_until(client, tp, 16)
