"""TLS and SASL with other people's clients: records go through every listener, strangers stay outside."""

import asyncio
import ssl
import threading
import warnings
from collections.abc import Iterator

import aiokafka
import aiokafka.errors
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from protocol.client import AuthenticationError, ClientError, ClusterClient, Connection
from protocol.client.properties import client_security
from tests.support.secure_side import SecureSide, secure_side
from tests.support.zookeeper import fresh_chroot

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its own files
    import kafka
    import kafka.errors

pytestmark = pytest.mark.cluster
WAYS = [
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ("SSL", ""),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-512"),
]
RECORDS = [bytes([number]) * 30_000 for number in range(100)]  # larger than TLS records and socket buffers


@pytest.fixture(scope="module")
def side(zookeeper_server, tmp_path_factory) -> Iterator[SecureSide]:
    with secure_side("isthmus", tmp_path_factory.mktemp("secure"), fresh_chroot(zookeeper_server)) as running:
        yield running


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_librdkafka(side, listener, mechanism):
    settings = side.client(listener, mechanism)
    topic = f"librdkafka-{listener}-{mechanism}"
    producer = Producer({**settings, "linger.ms": 5})
    for record in RECORDS:
        producer.produce(topic, record, on_delivery=lambda error, message: None)
    assert producer.flush(60) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read: list[bytes] = []
    while len(read) < len(RECORDS):
        for message in consumer.consume(100, 60):
            assert message.error() is None
            read.append(message.value())
    consumer.close()
    assert read == RECORDS


def kafka_python_settings(side: SecureSide, listener: str, mechanism: str, password: str | None = None):
    ours = side.client(listener, mechanism, password)
    settings = {"bootstrap_servers": ours["bootstrap.servers"], "security_protocol": listener}
    if mechanism:
        settings |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": ours["sasl.username"],
            "sasl_plain_password": ours["sasl.password"],
        }
    return settings


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_kafka_python(side, listener, mechanism):
    settings = kafka_python_settings(side, listener, mechanism)
    settings |= {"ssl_cafile": str(side.authority.certificate_file)} if listener.endswith("SSL") else {}
    if listener == "SSL":
        settings |= {"ssl_certfile": str(side.store), "ssl_keyfile": str(side.store)}
    topic = f"kafka-python-{listener}-{mechanism}"
    admin = AdminClient(side.client("PLAINTEXT"))
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    producer = kafka.KafkaProducer(**settings)
    sent = [producer.send(topic, record) for record in RECORDS]
    assert [future.get(60).offset for future in sent] == list(range(len(RECORDS)))
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    read = []
    for message in consumer:
        read.append(message.value)
        if len(read) == len(RECORDS):
            break
    consumer.close()
    assert read == RECORDS


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
async def test_aiokafka(side, listener, mechanism):
    settings = kafka_python_settings(side, listener, mechanism)
    if listener.endswith("SSL"):
        context = ssl.create_default_context(cafile=str(side.authority.certificate_file))
        if listener == "SSL":
            context.load_cert_chain(side.store)
        settings["ssl_context"] = context
    topic = f"aiokafka-{listener}-{mechanism}"
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        for record in RECORDS[:10]:
            await producer.send_and_wait(topic, record)
    async with aiokafka.AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(60):
            read = [(await consumer.getone()).value for _ in range(10)]
    assert read == RECORDS[:10]


def our_settings(side: SecureSide, listener: str, mechanism: str, password: str | None = None):
    return side.java_client(listener, mechanism, password)


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
async def test_our_own_client(side, listener, mechanism):
    security = client_security(our_settings(side, listener, mechanism))
    async with ClusterClient(side.address(listener), config=security) as client:
        metadata = await client.metadata(None)
        assert [broker.port for broker in metadata.brokers.values()] == [side.ports[listener]]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_wrong_password_is_refused_by_name(side, mechanism):
    told = "Invalid username or password" if mechanism == "PLAIN" else f"SASL mechanism {mechanism}"
    errors: list[str] = []
    heard = threading.Event()

    def hear(error):
        errors.append(error.str())
        heard.set()

    settings = side.client("SASL_PLAINTEXT", mechanism, "wrong")
    producer = Producer({**settings, "error_cb": hear, "log_level": 0})
    for _ in range(300):
        producer.poll(0.1)
        if heard.is_set():
            break
    assert told in errors[0]

    with pytest.raises(kafka.errors.KafkaError):
        await asyncio.to_thread(
            kafka.KafkaAdminClient,
            **kafka_python_settings(side, "SASL_PLAINTEXT", mechanism, "wrong"),
            bootstrap_timeout_ms=1_000,
        )
    client = aiokafka.AIOKafkaProducer(**kafka_python_settings(side, "SASL_PLAINTEXT", mechanism, "wrong"))
    with pytest.raises(aiokafka.errors.KafkaConnectionError):
        await client.start()
    await client.stop()
    security = client_security(our_settings(side, "SASL_SSL", mechanism, "wrong"))
    with pytest.raises(AuthenticationError, match=told):
        async with ClusterClient(side.address("SASL_SSL"), config=security) as ours:
            await ours.metadata(None)


async def test_without_a_certificate_nobody_gets_in_where_one_is_required(side):
    settings = side.java_client("SSL")
    del settings["ssl.keystore.location"]
    with pytest.raises(ClientError):  # with TLS 1.3 a client hears of it after its handshake
        await Connection.open("127.0.0.1", side.ports["SSL"], ssl=client_security(settings).ssl)
    bare = {**side.client("SSL"), "log_level": 0}
    for name in ("ssl.certificate.location", "ssl.key.location"):
        del bare[name]
    admin = AdminClient(bare)
    with pytest.raises(KafkaException):
        await asyncio.to_thread(admin.list_topics, timeout=3)


async def test_credentials_go_with_their_deletion(side):
    """KIP-554, and what another client hears of a user whose password was changed."""
    admin = AdminClient(side.client("PLAINTEXT"))
    user, mechanism = "eve, =\u00e9~*", ScramMechanism.SCRAM_SHA_256
    security = client_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": "one",
        }
    )

    async def gets_in() -> bool:
        try:
            async with ClusterClient(side.address("SASL_PLAINTEXT"), config=security) as client:
                await client.metadata(None)
        except AuthenticationError:
            return False
        return True

    def alter(change):
        return admin.alter_user_scram_credentials([change])[user].result(30)

    assert not await gets_in()
    alter(UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), b"one"))
    assert await gets_in()
    described = admin.describe_user_scram_credentials([user])[user].result(30)
    assert [(info.mechanism, info.iterations) for info in described.scram_credential_infos] == [
        (mechanism, 4096)
    ]
    alter(UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), b"two"))
    assert not await gets_in()
    alter(UserScramCredentialDeletion(user, mechanism))
    with pytest.raises(KafkaException, match="does not exist"):
        alter(UserScramCredentialDeletion(user, mechanism))
