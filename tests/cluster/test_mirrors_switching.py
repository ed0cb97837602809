"""Promote, failover, reverse, truncate and restore between real clusters: what is lost is counted, the rest
is read on by clients that nobody here wrote.
"""

import asyncio

import confluent_kafka
import pytest

from protocol.client import Committed
from protocol.client.mirror_calls import Change
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from replicator.mirrors import fencing
from replicator.mirrors.assessing import SwitchRefused, find_mirrors, risks
from replicator.mirrors.giving_up import fenced_topics, give_up
from replicator.mirrors.switching import failover, open_for_writing, promote
from replicator.mirrors.terms import raised
from replicator.mirrors.topics import mirror_text
from tests.cluster.links import create, eventually, fresh, produce, some
from tests.cluster.mirrors import (
    ends,
    idempotent,
    log_bytes,
    mirror_link,
    mirrored,
    mirrored_once,
    mirroring,
    quiet,
    read,
    same_logs,
    transactional,
    write,
)
from tests.support.apache_kafka import kafka_tool
from tests.support.slow import slow

pytestmark = pytest.mark.cluster


async def test_promote_loses_nothing_and_clients_go_on(pair, clients):
    east, west = clients
    topic = fresh("promote")
    tp = TopicPartition(topic, 0)
    await create(east, topic)
    writer = idempotent(pair.east)
    await asyncio.to_thread(write, writer, topic, [f"v{n}" for n in range(40)])
    first = await asyncio.to_thread(read, pair.east, topic, 25, group=topic, start=0)
    await east.commit(topic, {tp: Committed(first[-1][0] + 1, 0)})
    link = mirror_link(pair.east, pair.west, topic)
    async with mirroring(link) as running:
        await same_logs(east, west, topic)
        mirrors = await find_mirrors(west, link)
        (risk,) = await risks(east, west, link, mirrors)
        assert (risk.records, risk.seconds, risk.counted) == (0, 0.0, "now")
        await asyncio.to_thread(write, writer, topic, ["last"])
        done = await promote(east, west, link, mirrors, quiet, timeout_s=60)
        assert done.to_json()["records_lost"] == 0
        assert done.fenced
        (refused,) = await asyncio.to_thread(write, writer, topic, ["too late"])
        assert refused.code() == confluent_kafka.KafkaError.POLICY_VIOLATION

        async def left():
            return topic in running.to_json()["topics_not_copied"]

        await eventually(left, "the link leaves a promoted topic alone")
        assert await running.stop() == 0
    rest = await asyncio.to_thread(read, pair.west, topic, 16, group=topic)
    assert [value for _, value in first + rest] == [f"v{n}" for n in range(40)] + ["last"]
    assert [offset for offset, _ in first + rest] == list(range(41))
    # Producer ids begin at 0 in every cluster: these are the source's, unless that one was forgotten.
    for _ in range(3):
        assert await asyncio.to_thread(write, idempotent(pair.west), topic, ["new"]) == [None]
    producer = await asyncio.to_thread(transactional, pair.west, topic)
    producer.begin_transaction()
    assert await asyncio.to_thread(write, producer, topic, ["within"]) == [None]
    await asyncio.to_thread(producer.commit_transaction, 30)
    news = await asyncio.to_thread(read, pair.west, topic, 4, group=topic)
    assert [value for _, value in news] == ["new"] * 3 + ["within"]


async def test_the_log_of_a_fenced_source_stands_still_beside_producers_that_try_again(pair, clients):
    east, west = clients
    topic = fresh("fenced")
    await create(east, topic)
    producer = await asyncio.to_thread(transactional, pair.east, topic)
    producer.begin_transaction()
    assert await asyncio.to_thread(write, producer, topic, ["before"]) == [None]
    link = mirror_link(pair.east, pair.west, topic)
    async with mirroring(link):
        await same_logs(east, west, topic)
        mirrors = await find_mirrors(west, link)
        promoting = asyncio.create_task(promote(east, west, link, mirrors, quiet, timeout_s=30))

        async def fenced():
            return mirror_text((await east.describe_configs([topic]))[topic]) is not None

        await eventually(fenced, "the source is fenced")
        await asyncio.to_thread(producer.commit_transaction, 30)  # what was written before may end
        end = (await ends(east, topic))[0]
        for _ in range(3):
            producer.begin_transaction()
            (refused,) = await asyncio.to_thread(write, producer, topic, ["too late"])
            assert refused is not None
            await asyncio.to_thread(producer.abort_transaction, 30)
        assert await ends(east, topic) == [end]
        assert (await promoting).to_json()["records_lost"] == 0
    assert await asyncio.to_thread(read, pair.west, topic, 1, start=0) == [(0, "before")]


async def test_a_promotion_that_was_broken_off_can_be_given_up(pair, clients):
    east, west = clients
    topic = fresh("given-up")
    tp = TopicPartition(topic, 0)
    await create(east, topic)
    await produce(east, topic, some(5))
    link = mirror_link(pair.east, pair.west, topic)
    async with mirroring(link) as running:
        await same_logs(east, west, topic)
        mirrors = await find_mirrors(west, link)
        await fencing.fence(east, west, link, mirrors)
        era = (await raised(west, {tp: mirrors[topic].text}, {tp: 100_000}))[tp]
        await west.settle_mirror(tp, mirrors[topic].text, era.leader_epoch)  # and there it was killed
        assert await ends(west, topic) == [6]
        fenced = await fenced_topics(east, link)
        assert list(fenced) == [topic]
        await give_up(east, west, link, fenced, quiet)
        assert await ends(west, topic) == [5]
        await eventually(_takes(idempotent(pair.east), topic), "the source is written to")
        await same_logs(east, west, topic)
        assert running.to_json()["differences"] == []
        fenced = await fencing.fence(east, west, link, mirrors)
        await open_for_writing(west, mirrors, quiet)
        with pytest.raises(SwitchRefused, match="may be written to"):
            await give_up(east, west, link, fenced, quiet)


async def test_promote_refuses_while_writers_go_on(pair, clients):
    east, west = clients
    topic = fresh("busy")
    await create(east, topic)
    await produce(east, topic, some(5))
    link = mirror_link(pair.east, pair.west, topic)
    stop = asyncio.Event()

    async def keep_writing():
        while not stop.is_set():
            await produce(east, topic, some(1))
            await asyncio.sleep(0.05)

    async with mirroring(link):
        await same_logs(east, west, topic)
        writing = asyncio.create_task(keep_writing())
        mirrors = await find_mirrors(west, link)
        with pytest.raises(SwitchRefused, match="writers"):
            await promote(east, west, link, mirrors, quiet, timeout_s=2.5, fence=False)
        stop.set()
        await writing
        assert await find_mirrors(west, link) == mirrors
        await same_logs(east, west, topic)


async def test_failover_aborts_what_is_open_and_counts_what_is_lost(pair, clients):
    east, west = clients
    topic = fresh("failover")
    await create(east, topic)
    opened = await asyncio.to_thread(transactional, pair.east, topic)
    opened.begin_transaction()
    await asyncio.to_thread(write, opened, topic, ["never committed"])
    await produce(east, topic, some(10))
    link = mirror_link(pair.east, pair.west, topic)
    await mirrored_once(east, west, link, topic)
    await produce(east, topic, some(7))
    mirrors = await find_mirrors(west, link)
    (unheard,) = await risks(None, west, link, mirrors)
    assert (unheard.records, unheard.source_end, unheard.open_transactions) == (0, 11, 1)
    assert unheard.counted.endswith("s ago")
    assert 0 < unheard.seconds < 60
    (known,) = await risks(east, west, link, mirrors)
    assert (known.records, known.counted, known.is_exact) == (7, "now", True)
    with pytest.raises(SwitchRefused, match="transactions are open"):
        await promote(east, west, link, mirrors, quiet, timeout_s=3)
    lost = await failover(None, west, link, mirrors, quiet)
    assert lost.aborted_transactions == 1
    assert not lost.to_json()["lost_is_known"]  # of the seven nobody here has heard
    tp = TopicPartition(topic, 0)
    end = (await west.list_offsets({tp: -1}))[tp].offset
    assert (await west.list_offsets({tp: -1}, isolation=1))[tp].offset == end
    assert await asyncio.to_thread(write, idempotent(pair.west), topic, ["after"]) == [None]
    values = await asyncio.to_thread(read, pair.west, topic, 18, start=0)
    assert values[0] == (1, "v-0")
    assert values[-1][1] == "after"


async def test_failover_beside_a_source_that_answers_but_has_lost_the_topic(pair, clients):
    """Half dead is dead: what the link knew of it last counts, and nothing is held up."""
    east, west = clients
    topic, link = await mirrored(pair, clients, "half-dead", 10)
    mirrors = await find_mirrors(west, link)
    await east.delete_topics([topic])
    (risk,) = await risks(east, west, link, mirrors)
    assert (risk.source_end, risk.records) == (10, 0)
    assert risk.counted.endswith("s ago")
    assert (await failover(east, west, link, mirrors, quiet)).topics == [topic]
    assert await asyncio.to_thread(write, idempotent(pair.west), topic, ["after"]) == [None]


@pytest.mark.interop
@slow("two runs of a Java client; the offsets and epochs of commits are looked at in test_mirrors")
async def test_a_java_consumer_moves_to_the_other_side_with_its_offsets(pair, clients):
    """It holds the term of a leader against the epochs of commits and batches (KIP-320)."""
    east, west = clients
    topic = fresh("java")
    await create(east, topic)
    await cut_source(east, topic, 0)  # only another term: the source's epochs are not those of a new topic
    writer = idempotent(pair.east)
    await eventually(_takes(writer, topic), "the source is written to")
    await asyncio.to_thread(write, writer, topic, [f"v{n}" for n in range(1, 10)])

    def java(bootstrap, count):
        return kafka_tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--group", topic),
            *("--from-beginning", "--max-messages", str(count), "--timeout-ms", "60000"),
            *("--isolation-level", "read_committed"),
            timeout=180,
        ).split()

    first = await asyncio.to_thread(java, pair.east, 4)
    link = mirror_link(pair.east, pair.west, topic)
    async with mirroring(link):
        await same_logs(east, west, topic)
    opened = await asyncio.to_thread(transactional, pair.east, topic)
    opened.begin_transaction()
    await asyncio.to_thread(write, opened, topic, ["never"])
    async with mirroring(link):
        await same_logs(east, west, topic)
        await eventually(_has_committed(west, topic), "the group is at the target")
    done = await failover(None, west, link, await find_mirrors(west, link), quiet)
    assert done.aborted_transactions == 1
    assert await asyncio.to_thread(write, idempotent(pair.west), topic, ["new-0", "new-1"]) == [None, None]
    rest = await asyncio.to_thread(java, pair.west, 8)
    assert first + rest == [f"v{n}" for n in range(10)] + ["new-0", "new-1"]


def _takes(writer, topic):
    async def check():
        return await asyncio.to_thread(write, writer, topic, ["v0"]) == [None]

    return check


def _has_committed(client, group):
    async def check():
        return bool(await client.committed(group))

    return check


async def cut_source(client, topic, end):
    """As an unclean election leaves it: what was there from `end` on is gone, another leader epoch begins."""
    tp, nobody = TopicPartition(topic, 0), "test/nobody/nothing"
    await client.change_mirrors({topic: Change(nobody, None)})
    stand = (await raised(client, {tp: nobody}, {tp: (await client.leader(tp)).epoch + 1}))[tp]
    await client.settle_mirror(tp, nobody, stand.leader_epoch, cut_to=end)
    await client.change_mirrors({topic: Change(None, nobody)})


async def test_a_source_that_has_lost_its_end_stops_the_mirror_or_cuts_it(pair, clients):
    east, west = clients
    topic = fresh("cut")
    await create(east, topic)
    for _ in range(4):
        await produce(east, topic, some(5))
    link = mirror_link(pair.east, pair.west, topic)
    async with mirroring(link) as running:
        await same_logs(east, west, topic)
        kept = await log_bytes(west, topic)
        await west.commit(f"{topic}-reader", {TopicPartition(topic, 0): Committed(20, -1)})
        await cut_source(east, topic, 10)

        async def written():
            try:
                return await produce(east, topic, some(25, "another history")) == 10
            except KafkaError as error:
                if error.code is not ErrorCode.POLICY_VIOLATION:  # its leader has not heard yet
                    raise
                return False

        await eventually(written, "the source is written to again")

        async def said():
            return any("lost or replaced" in text for text in running.to_json()["differences"])

        await eventually(said, "the status says that the source lost records")
        assert await log_bytes(west, topic) == kept
        assert await running.stop() == 3
    async with mirroring(link.model_copy(update={"on_truncation": "cut"})) as running:
        await same_logs(east, west, topic)
        (part,) = running.to_json()["partitions"].values()
        assert "10 to 20 were cut off" in part["notes"][0]
        assert [at.offset for at in (await west.committed(f"{topic}-reader")).values()] == [10]
        assert await running.stop() == 3
    async with mirroring(link) as running:  # on record, as readers of the mirror may have what was cut off
        await same_logs(east, west, topic)
        assert await running.stop() == 3
        assert any("10 to 20: cut off" in text for text in running.to_json()["differences"])
