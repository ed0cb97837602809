"""Brokers and clients with stores that Java's keytool made, on a listener that wants a certificate."""

import asyncio

import pytest
from confluent_kafka.admin import AdminClient

from protocol.client.access import Access
from replicator.mirrormaker.file import read_mirrormaker_file
from tests.support.keytool import PASSWORD, Keytool, needs_keytool
from tests.support.secure_side import KAFKA, secure_side
from tests.support.slow import slow
from tests.support.zookeeper import fresh_chroot

pytestmark = [needs_keytool, pytest.mark.timeout(400)]  # Apache Kafka takes its time on a busy machine


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("isthmus", marks=pytest.mark.cluster),
        pytest.param(KAFKA, marks=[pytest.mark.interop, slow("starts Apache Kafka")]),
    ],
)
def side(request, zookeeper_server, tmp_path_factory):
    keytool = Keytool(tmp_path_factory.mktemp("stores"))
    settings = {
        "ssl.keystore.type": "JKS",  # the default, of a file in today's form: as Java takes it
        "ssl.keystore.location": str(keytool.key_store("broker.jks")),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(keytool.trust_store("trust.p12")),
        "ssl.truststore.password": PASSWORD,
    }
    mine = {**settings, "security.protocol": "SSL", "ssl.keystore.location": str(keytool.key_store("me.p12"))}
    folder = tmp_path_factory.mktemp("side")
    with secure_side(request.param, folder, fresh_chroot(zookeeper_server), settings) as made:
        yield made, mine


async def test_both_clients_are_let_in(side):
    made, mine = side
    access = Access(made.address("SSL"), mine)
    async with access.client("test") as client:
        assert len((await client.metadata([])).brokers) == 1
    admin = AdminClient(access.librdkafka())
    assert len((await asyncio.to_thread(admin.list_topics, timeout=30)).brokers) == 1


async def test_a_file_of_mirrormaker_is_taken_as_it_is(side, tmp_path):
    made, mine = side
    file = tmp_path / "mm2.properties"
    lines = [f"{alias}.{name} = {value}" for alias in ("a", "b") for name, value in mine.items()]
    lines += [f"{alias}.bootstrap.servers = {made.address('SSL')}" for alias in ("a", "b")]
    file.write_text("\n".join(["clusters = a, b", "a->b.enabled = true", *lines]))
    (link,) = read_mirrormaker_file(file).links
    async with link.source.at_once() as client:
        assert len((await client.metadata([])).brokers) == 1
