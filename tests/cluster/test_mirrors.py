"""Mirrors with identical offsets between real clusters: byte for byte, read-only, groups as they are."""

import asyncio

import confluent_kafka
import pytest

from protocol.client import Committed
from protocol.errors import KafkaError
from protocol.records import Codec
from protocol.types import TopicPartition
from tests.cluster.links import BOTH_SOURCES, create, eventually, fresh, produce, some
from tests.cluster.mirrors import (
    log_bytes,
    mirror_link,
    mirrored,
    mirroring,
    same_logs,
    transactional,
    write,
)

pytestmark = BOTH_SOURCES


def fill(bootstrap, topic):
    """Transactions that committed, aborted and are open, over each other; the open one is returned."""
    committed, aborted, opened = (transactional(bootstrap, f"{topic}-{n}") for n in "abc")
    for producer in (committed, aborted, opened):
        producer.begin_transaction()
    write(opened, topic, ["open-0"])
    write(aborted, topic, ["aborted-0", "aborted-1"])
    write(committed, topic, ["committed-0"])
    aborted.abort_transaction(30)
    write(committed, topic, ["committed-1"])
    committed.commit_transaction(30)
    return opened


async def test_logs_are_the_same_byte_for_byte(pair, clients):
    east, west = clients
    topic = fresh("bytes")
    await create(east, topic, 2, retention_ms="-1")
    for codec in Codec:
        await produce(east, topic, some(20, codec.name), 0, codec)
    opened = await asyncio.to_thread(fill, pair.east, topic)
    link = mirror_link(pair.east, pair.west, topic)
    async with mirroring(link) as running:
        await same_logs(east, west, topic, 2)
        await produce(east, topic, some(5, "later"), 1)
        await asyncio.to_thread(opened.abort_transaction, 30)
        await same_logs(east, west, topic, 2)
        assert await log_bytes(west, topic, 0)
        status = running.to_json()
        assert status["differences"] == []
        assert status["partitions"][f"{topic}-0"]["lag"] == 0
        settings = (await west.describe_configs([topic]))[topic]
        assert settings["retention.ms"].value == "-1"
        assert await running.stop() == 0


async def test_a_mirror_refuses_writers_and_says_why(pair, clients):
    east, west = clients
    topic = fresh("refused")
    await create(east, topic)
    await produce(east, topic, some(3))
    async with mirroring(mirror_link(pair.east, pair.west, topic)):
        await same_logs(east, west, topic)
        plain = confluent_kafka.Producer({"bootstrap.servers": pair.west})
        idempotent = confluent_kafka.Producer({"bootstrap.servers": pair.west, "enable.idempotence": True})
        for producer in (plain, idempotent):
            (refused,) = await asyncio.to_thread(write, producer, topic, ["no"])
            assert refused is not None
            assert refused.code() == confluent_kafka.KafkaError.POLICY_VIOLATION
        producer = await asyncio.to_thread(transactional, pair.west, topic)
        producer.begin_transaction()
        (refused,) = await asyncio.to_thread(write, producer, topic, ["no"])
        assert refused is not None
        await asyncio.to_thread(producer.abort_transaction, 30)
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": pair.west})
        deleted = admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 2)])
        with pytest.raises(confluent_kafka.KafkaException, match="POLICY_VIOLATION"):
            await asyncio.to_thread(next(iter(deleted.values())).result, 30)
        await same_logs(east, west, topic)


async def test_the_mirror_begins_where_its_source_begins(pair, clients):
    east, west = clients
    topic = fresh("start")
    tp = TopicPartition(topic, 0)
    await create(east, topic)
    for _ in range(4):
        await produce(east, topic, some(10))
    await east.delete_records({tp: 15})  # inside of a batch
    async with mirroring(mirror_link(pair.east, pair.west, topic)) as running:
        await same_logs(east, west, topic)
        await east.delete_records({tp: 32})

        async def followed():
            return running.to_json()["partitions"][str(tp)]["start"] == 32

        await eventually(followed, "the mirror begins at 32")
        await produce(east, topic, some(2))
        await same_logs(east, west, topic)
        assert running.to_json()["differences"] == []


async def test_what_retention_took_from_a_stopped_link_is_a_gap_after_every_restart(pair, clients):
    east, west = clients
    topic, link = await mirrored(pair, clients, "gap", 10)
    tp = TopicPartition(topic, 0)
    await produce(east, topic, some(10))
    await produce(east, topic, some(10))
    await east.delete_records({tp: 20})
    for _ in range(2):
        async with mirroring(link) as running:
            await same_logs(east, west, topic)

            async def known(running=running):
                part = running.to_json()["partitions"].get(str(tp), {})
                return part.get("gaps") == [(10, 20, "retention passed at the source")]

            await eventually(known, "the gap is in the status")
            assert await running.stop() == 3


async def test_a_source_that_is_created_again_is_another_one(pair, clients):
    east, west = clients
    topic = fresh("again")
    await create(east, topic)
    await produce(east, topic, some(5, "old"))
    async with mirroring(mirror_link(pair.east, pair.west, topic)) as running:
        await same_logs(east, west, topic)
        kept = await log_bytes(west, topic)
        await east.delete_topics([topic])

        async def made():
            await create(east, topic)
            return True

        await eventually(_without_errors(made), "created again")
        await produce(east, topic, some(9, "new"))

        async def said():
            return any("created again" in text for text in running.to_json()["differences"])

        await eventually(said, "the status says that the source is another topic")
        assert await log_bytes(west, topic) == kept
        assert await running.stop() == 3


def _without_errors(check):
    async def quietly():
        try:
            return await check()
        except KafkaError:
            return False

    return quietly


async def test_groups_are_copied_as_they_are(pair, clients):
    east, west = clients
    topic = fresh("groups")
    tp = TopicPartition(topic, 0)
    await create(east, topic)
    await produce(east, topic, some(20))
    await east.commit(topic, {tp: Committed(7, 0, "seven")})
    link = mirror_link(pair.east, pair.west, topic)

    def copied(wanted):
        async def check():
            return (await west.committed(topic)).get(tp) == wanted

        return check

    async with mirroring(link):
        await eventually(copied(Committed(7, 0, "seven")), "offset, epoch and metadata of the commit")
    async with mirroring(link):  # by another process: what the one before has set is the link's too
        await east.commit(topic, {tp: Committed(4, 0, "reset")})
        await eventually(copied(Committed(4, 0, "reset")), "a group that is reset at the source")
        await west.commit(topic, {tp: Committed(9, 0, "here")})
        await east.commit(topic, {tp: Committed(5, 0, "there")})
        await produce(east, topic, some(1))
        await same_logs(east, west, topic)
        await eventually(copied(Committed(9, 0, "here")), "what somebody has moved ahead at the target stays")
