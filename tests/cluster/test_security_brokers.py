"""Brokers that speak SASL_SSL among themselves: replication and transactions, over sessions that end."""

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from protocol.client import AuthenticationError, Connection, SaslScram
from protocol.client.properties import client_security
from tests.support.broker import Cluster
from tests.support.certificates import Authority
from tests.support.secure_side import PASSWORDS, SecureSide, listening, security_settings
from tests.support.waiting import eventually
from tests.support.zookeeper import fresh_chroot

pytestmark = pytest.mark.cluster
SESSION_MS = 2000


@pytest.fixture(scope="module")
def sides(zookeeper_server, tmp_path_factory) -> Iterator[list[SecureSide]]:
    """Two brokers whose sessions among themselves last two seconds."""
    directory = tmp_path_factory.mktemp("brokers")
    authority = Authority(directory / "certificates")
    settings = {
        **security_settings(authority.store("broker"), authority),
        "listeners": "SASL_SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.connections.max.reauth.ms": str(SESSION_MS),
        "default.replication.factor": "2",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "2",
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "2",
    }
    for name in [
        name for name in settings if name.startswith(("listener.name.ssl.", "listener.name.sasl_pl"))
    ]:
        del settings[name]
    cluster = Cluster(directory, fresh_chroot(zookeeper_server))
    try:
        for number in (1, 2):
            cluster.add(number, settings=settings)
        cluster.start()
        store = authority.store("client")
        yield [SecureSide(listening(broker), authority, store, broker) for broker in cluster.brokers.values()]
    finally:
        cluster.close()


async def test_records_are_replicated_while_sessions_end(sides):
    """acks=all with two in-sync replicas: each record needs the other broker's fetch."""
    client = sides[0].client("SASL_SSL", "PLAIN")
    admin = AdminClient(client)
    admin.create_topics([NewTopic("replicated", 4, 2)])["replicated"].result(60)
    producer = Producer({**client, "acks": "all", "enable.idempotence": True, "linger.ms": 0})
    failed: list[object] = []
    sent = 0
    for _ in range(60):  # six seconds: three sessions
        for _ in range(5):
            producer.produce(
                "replicated", str(sent), on_delivery=lambda error, _: error and failed.append(error)
            )
            sent += 1
        producer.poll(0)
        await asyncio.sleep(0.1)
    assert producer.flush(60) == 0
    assert not failed
    consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["replicated"])
    read: set[int] = set()
    while len(read) < sent:
        messages = consumer.consume(sent - len(read), 60)
        assert messages, f"{len(read)} of {sent}"
        read |= {int(message.value()) for message in messages if message.error() is None}
    consumer.close()


def test_transactions_reach_partitions_of_both_brokers(sides):
    client = sides[1].client("SASL_SSL", "PLAIN")
    admin = AdminClient(client)
    admin.create_topics([NewTopic("transactional", 4, 2)])["transactional"].result(60)
    producer = Producer({**client, "transactional.id": "t"})
    producer.init_transactions(60)
    for round_number in range(3):
        producer.begin_transaction()
        for partition in range(4):
            producer.produce("transactional", str(round_number), partition=partition)
        producer.commit_transaction(60)
    consumer = Consumer(
        {
            **client,
            "group.id": "tg",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["transactional"])
    read = 0
    while read < 12:
        messages = consumer.consume(12 - read, 60)
        assert messages, f"{read} of 12"
        read += len(messages)
    consumer.close()


async def test_a_new_user_is_known_to_every_broker(sides):
    first, second = sides
    admin = AdminClient(first.client("SASL_SSL", "PLAIN"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("dora", info, PASSWORDS["bob"].encode())
    admin.alter_user_scram_credentials([change])["dora"].result(60)
    security = client_security(second.java_client("SASL_SSL", "PLAIN"))

    async def gets_in() -> bool:
        try:
            connection = await Connection.open(
                "127.0.0.1",
                second.ports["SASL_SSL"],
                ssl=security.ssl,
                sasl=SaslScram("dora", PASSWORDS["bob"]),
            )
        except AuthenticationError:
            return False
        await connection.close()
        return True

    await eventually(gets_in, bool, bound_s=60)
