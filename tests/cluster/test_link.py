"""Links between two real clusters: what arrives; restarts, growth and trouble lose and repeat nothing."""

import asyncio
import functools
import random

import pytest

from protocol.client import Committed
from protocol.errors import ErrorCode, KafkaError
from protocol.records import Codec, Record
from protocol.types import TopicPartition, uuid_to_text
from replicator.progress import read_ledgers
from tests.cluster.links import (
    LinkProcess,
    Pair,
    content,
    copied_to,
    create,
    eventually,
    fresh,
    produce,
    records,
    running,
    some,
    two_brokers,
)
from tests.support.apache_kafka import apache_kafka

T0 = 1_700_000_000_000
APACHE = ("log.cleaner.backoff.ms=300", "log.initial.task.delay.ms=300")


def odd_records(tag):
    """Every kind of key, value and header."""
    return [
        Record(0, T0, None, b"no key " + tag),
        Record(0, T0 + 50, b"", b"empty key"),
        Record(0, T0 + 20, b"tombstone", None),
        Record(0, T0 + 21, b"empty", b""),
        Record(0, T0 + 22, None, None),
        Record(0, T0 - 5, b"h", b"headers", [("a", b"1"), ("a", None), ("", b""), ("ünï", b"\xff")]),
    ]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("isthmus", marks=pytest.mark.cluster),
        pytest.param("apache", marks=[pytest.mark.interop, pytest.mark.slow]),
    ],
)
def pair(request, tmp_path_factory):
    """Two clusters of one broker each: ours, and Apache Kafka's."""
    if request.param == "apache":
        with apache_kafka("link-east", *APACHE) as east, apache_kafka("link-west", *APACHE) as west:
            yield Pair("apache", east, west)
        return
    server = request.getfixturevalue("zookeeper_server")
    with two_brokers(server, tmp_path_factory.mktemp("pair")) as pair:
        yield pair


async def test_every_kind_of_record_arrives_unchanged(pair, clients):
    east, west = clients
    created, appended = fresh("create-time"), fresh("append-time")
    await create(east, created, 2)
    await create(east, appended, 1, message_timestamp_type="LogAppendTime")
    for codec in Codec:
        await produce(east, created, odd_records(codec.name.encode()), 0, codec)
        await produce(east, created, odd_records(b"p1" + codec.name.encode()), 1, codec)
        await produce(east, appended, odd_records(codec.name.encode()), 0, codec)
    link = pair.link(f"{created}|{appended}")
    async with running(link):
        for topic, partition in ((created, 0), (created, 1), (appended, 0)):
            await copied_to(west, link, topic, 30, partition)
            there = await content(west, f"{link.source.alias}.{topic}", partition)
            assert there == await content(east, topic, partition)
            assert len(there) == 30


async def test_look_ups_by_time_point_to_the_same_records(pair, clients):
    east, west = clients
    created, appended = fresh("times"), fresh("times-appended")
    await create(east, created)
    await create(east, appended, 1, message_timestamp_type="LogAppendTime")
    dice = random.Random(3)
    for topic in (created, appended):
        await produce(west, await _pre_filled(west, pair), some(1))  # nothing of another topic counts
        for _ in range(5):
            batch = [Record(0, T0 + dice.randrange(10_000), b"k", b"v") for _ in range(8)]
            await produce(east, topic, batch)
    link = pair.link(f"{created}|{appended}")
    async with running(link):
        for topic in (created, appended):
            await copied_to(west, link, topic, 40)
            here, there = TopicPartition(topic, 0), TopicPartition(f"{link.source.alias}.{topic}", 0)
            ledger = (await read_ledgers(west, link.name))[here]
            times = [record.timestamp for record in await records(east, topic)]
            for wanted in [*dice.sample(times, 20), max(times) + 1, min(times) - 1]:
                ours = (await east.list_offsets({here: wanted}))[here]
                theirs = (await west.list_offsets({there: wanted}))[there]
                assert theirs.timestamp == ours.timestamp
                expected = -1 if ours.offset < 0 else ledger.runs.to_target(ours.offset).offset
                assert theirs.offset == expected


async def test_a_target_that_stamps_its_own_time_is_named_in_the_status(pair, clients):
    east, west = clients
    topic = fresh("own-time")
    await create(east, topic)
    await produce(east, topic, some(3, time_ms=T0))
    link = pair.link(topic)
    await create(west, f"{link.source.alias}.{topic}", 1, message_timestamp_type="LogAppendTime")
    async with running(link) as running_link:
        await copied_to(west, link, topic, 3)

        async def named():
            return "LogAppendTime" in running_link.status.to_json()["problems"].get(topic, "")

        await eventually(named, "the topic's problem")


async def _pre_filled(client, pair):
    name = fresh("other")
    await create(client, name)
    return name


async def test_partition_n_goes_to_partition_n_whatever_the_target_has(pair, clients):
    east, west = clients
    more, fewer, grows = fresh("more"), fresh("fewer"), fresh("grows")
    link = pair.link(f"{more}|{fewer}|{grows}", refresh_topics_interval_s=0.5)
    for name in (more, fewer, grows):
        await create(east, name, 3)
        for partition in range(3):
            await produce(east, name, [Record(0, T0, None, b"%d" % partition)] * 4, partition)
    await create(west, f"{link.source.alias}.{more}", 5)
    await create(west, f"{link.source.alias}.{fewer}", 2)
    async with running(link):
        for name in (more, fewer, grows):
            for partition in range(3):
                await copied_to(west, link, name, 4, partition)
        await east.create_partitions({grows: 4})
        await produce(east, grows, [Record(0, T0, None, b"3")] * 4, 3)
        await copied_to(west, link, grows, 4, 3)
    for name, partitions in ((more, 3), (fewer, 3), (grows, 4)):
        target = f"{link.source.alias}.{name}"
        for partition in range(partitions):
            assert await content(west, target, partition) == await content(east, name, partition)
    for partition in (3, 4):
        assert await content(west, f"{link.source.alias}.{more}", partition) == []


async def test_what_is_born_after_a_start_at_latest_is_copied_from_its_first_record(pair, clients):
    east, west = clients
    old, new = fresh("latest-old"), fresh("latest-new")
    await create(east, old)
    await produce(east, old, some(100, "before"))
    link = pair.link(f"{old}|{new}", start="latest", refresh_topics_interval_s=0.5)
    async with running(link) as first:
        await copied_to(west, link, old, 100)
        await produce(east, old, some(10, "after"))
        await copied_to(west, link, old, 110)
        assert await first.stop() == 0
    await east.create_partitions({old: 3})  # while no link runs
    for partition in (1, 2):
        await produce(east, old, some(50, f"p{partition}"), partition)
    await create(east, new)
    await produce(east, new, some(30, "new"))
    async with running(link) as second:
        await copied_to(west, link, old, 50, 1)
        await copied_to(west, link, old, 50, 2)
        await copied_to(west, link, new, 30)
        assert await second.stop() == 0
    target = f"{link.source.alias}.{old}"
    assert [value for _, _, value, _ in await content(west, target)] == [b"after-%d" % i for i in range(10)]
    assert len(await content(west, target, 1)) == len(await content(west, target, 2)) == 50
    ledgers = await read_ledgers(west, link.name)
    assert ledgers[TopicPartition(old, 1)].runs.source_start == 0
    assert ledgers[TopicPartition(new, 0)].records == 30


async def test_group_offsets_follow_exactly_and_never_go_back_or_past_the_data(pair, clients):
    east, west = clients
    topic, empty = fresh("groups"), fresh("groups-empty")
    reader, sleeper = fresh("groups-reader"), fresh("groups-sleeper")
    await create(east, topic, 2)
    await create(east, empty)
    link = pair.link("groups.*", sync_group_offsets_interval_s=0.3, naming="prefix")
    alias = link.source.alias
    await create(west, f"{alias}.{topic}", 2)
    await produce(west, f"{alias}.{topic}", some(5, "foreign"))  # so that offsets differ on the two sides
    await produce(east, topic, some(40))
    await produce(east, topic, some(10), 1)
    here = [TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition(empty, 0)]
    there = [TopicPartition(f"{alias}.{tp.topic}", tp.partition) for tp in here]
    await east.commit(reader, {here[0]: Committed(17), here[1]: Committed(10), here[2]: Committed(0)})
    await east.commit(sleeper, {here[0]: Committed(0)})

    async def at_target(group, expected):
        found = await west.committed(group)
        return {tp: found[tp].offset for tp in found} == expected

    async with running(link) as running_link:
        await copied_to(west, link, topic, 40)
        await eventually(
            lambda: at_target(reader, {there[0]: 22, there[1]: 10, there[2]: 0}), "exact offsets"
        )
        await eventually(lambda: at_target(sleeper, {there[0]: 5}), "an offset of 0")
        await east.commit(reader, {here[0]: Committed(40)})
        await eventually(lambda: at_target(reader, {there[0]: 45, there[1]: 10, there[2]: 0}), "the tip")
        await east.commit(reader, {here[0]: Committed(3)})  # a reset at the source does not rewind the target

        def standing(group):
            return running_link.status.to_json()["groups"].get(group, {}).get("reason") or ""

        async def not_taken_back():
            return "not taken back" in standing(reader)

        await eventually(not_taken_back, "a reason for the group that is ahead")
        assert await at_target(reader, {there[0]: 45, there[1]: 10, there[2]: 0})


async def test_a_group_that_has_read_more_than_is_copied_is_held_at_the_end_of_the_copy(pair, clients):
    east, west = clients
    topic, group = fresh("held"), fresh("held-group")
    await create(east, topic)
    await produce(east, topic, some(10))
    await east.commit(group, {TopicPartition(topic, 0): Committed(1000)})
    link = pair.link("held.*", sync_group_offsets_interval_s=0.3)
    async with running(link) as running_link:

        async def held():
            reason = running_link.status.to_json().get("groups", {}).get(group, {}).get("reason")
            return bool(reason) and "not copied yet" in reason

        await eventually(held, "a reason for the group that is held back")
        await copied_to(west, link, topic, 10)
        await eventually(held, "still held back")
        committed = await west.committed(group)
        assert {tp.topic: found.offset for tp, found in committed.items()}[
            f"{link.source.alias}.{topic}"
        ] <= 10


async def test_both_directions_copy_and_nothing_circles(pair, clients):
    east, west = clients
    topic = fresh("both")
    there = pair.link(f".*{topic}", number=77_000)
    back = pair.link(f".*{topic}", back=True, number=77_000)
    await create(east, topic)
    await create(west, topic)
    async with running(there), running(back):
        for turn in range(3):
            await produce(east, topic, some(20, f"east{turn}"))
            await produce(west, topic, some(30, f"west{turn}"))
        await copied_to(west, there, topic, 60)
        await copied_to(east, back, topic, 90)
        await asyncio.sleep(2 * there.refresh_topics_interval_s)  # time enough for a circle to begin
        topics = {name for name in (await east.metadata(None)).topics if topic in name}
        topics |= {name for name in (await west.metadata(None)).topics if topic in name}
    assert topics == {topic, f"{there.source.alias}.{topic}", f"{back.source.alias}.{topic}"}
    assert await content(west, f"{there.source.alias}.{topic}") == await content(east, topic)
    assert await content(east, f"{back.source.alias}.{topic}") == await content(west, topic)


async def test_a_link_that_is_killed_again_and_again_loses_repeats_and_reorders_nothing(
    pair, clients, tmp_path
):
    east, west = clients
    topic = fresh("killed")
    await create(east, topic, 3)
    link = pair.link(topic, progress_interval_s=1.0)
    process = LinkProcess(link, str(tmp_path / "link.log"))
    written = [0, 0, 0]
    done = asyncio.Event()

    async def load():
        while not done.is_set():
            for partition in range(3):
                batch = some(50, f"p{partition}-{written[partition]}")
                await produce(east, topic, batch, partition, random.choice(list(Codec)))
                written[partition] += 50
            await asyncio.sleep(0.01)

    loading = asyncio.create_task(load())
    try:
        for _ in range(5):
            moved = functools.partial(_moved, west, f"{link.source.alias}.{topic}", sum(written) + 600)
            await process.start()
            # Killed in the middle of moving: some of this round is copied, the rest is not.
            await eventually(moved, "some progress")
            await process.kill()
        done.set()
        await loading
        await process.start()
        for partition in range(3):
            await copied_to(west, link, topic, written[partition], partition)
        assert await process.stop() == 0
    finally:
        done.set()
        await asyncio.gather(loading, return_exceptions=True)
        await process.kill()
    for partition in range(3):
        there = await content(west, f"{link.source.alias}.{topic}", partition)
        assert there == await content(east, topic, partition)
        assert len(there) == written[partition]


async def _moved(client, topic, records_at_least):
    metadata = (await client.metadata([topic])).topics.get(topic)
    if metadata is None or metadata.error:
        return False
    tps = {TopicPartition(topic, partition): -1 for partition in metadata.partitions}
    return sum(found.offset for found in (await client.list_offsets(tps)).values()) >= records_at_least


async def test_records_deleted_before_they_were_copied_are_a_gap_for_ever(pair, clients):
    east, west = clients
    topic = fresh("gap")
    await create(east, topic)
    await produce(east, topic, some(20, "a"))
    link = pair.link(topic)
    async with running(link) as first:
        await copied_to(west, link, topic, 20)
        assert await first.stop() == 0
    await produce(east, topic, some(30, "lost"))
    await produce(east, topic, some(10, "kept"))
    await east.delete_records({TopicPartition(topic, 0): 50})
    async with running(link) as second:
        await copied_to(west, link, topic, 60)
        assert second.metric("isthmus_link_gap_offsets", topic=topic, partition="0") == 30
        assert second.metric("isthmus_link_gaps_total", reason="retention passed") == 1
        assert await second.stop() == 3
    ledger = (await read_ledgers(west, link.name))[TopicPartition(topic, 0)]
    assert [(gap.start, gap.end, gap.reason) for gap in ledger.gaps] == [(20, 50, "retention passed")]
    values = [value for _, _, value, _ in await content(west, f"{link.source.alias}.{topic}")]
    assert values == [b"a-%d" % i for i in range(20)] + [b"kept-%d" % i for i in range(10)]
    async with running(link) as third:  # also after a restart
        await eventually(lambda: _state(third, topic, "running"), "running again")
        assert await third.stop() == 3


async def _state(link, topic, state):
    return link.partition(topic).get("state") == state


async def test_a_topic_created_again_is_another_lineage_and_its_first_record_is_copied(pair, clients):
    east, west = clients
    topic = fresh("again")
    await create(east, topic)
    await produce(east, topic, some(20, "old"))
    link = pair.link(topic, refresh_topics_interval_s=0.5)
    async with running(link) as first:
        await copied_to(west, link, topic, 20)
        old = (await read_ledgers(west, link.name))[TopicPartition(topic, 0)]
        await east.delete_topics([topic])

        await eventually(lambda: _is_created(east, topic), "the topic is created again")
        await produce(east, topic, some(25, "new"))

        async def other_lineage():
            now = (await read_ledgers(west, link.name))[TopicPartition(topic, 0)]
            return now.source.topic_id != old.source.topic_id and now.next_source_offset == 25

        await eventually(other_lineage, "the new topic is copied")
        assert await first.stop() == 0  # nothing of the old one was missed
    ledger = (await read_ledgers(west, link.name))[TopicPartition(topic, 0)]
    assert [note.text.partition(" (")[0] for note in ledger.notes] == ["source topic re-created"]
    values = [value for _, _, value, _ in await content(west, f"{link.source.alias}.{topic}")]
    assert values == [b"old-%d" % i for i in range(20)] + [b"new-%d" % i for i in range(25)]


async def test_a_topic_created_again_and_again_with_as_many_records_is_copied_each_time(pair, clients):
    """With a producer's sequence numbers of before, the target takes them for the old ones and says so."""
    east, west = clients
    topic = fresh("as-many")
    link = pair.link(topic, refresh_topics_interval_s=0.5)
    here = TopicPartition(topic, 0)
    async with running(link) as run:
        for number in range(3):
            await eventually(lambda: _is_created(east, topic), "the topic is created")
            await produce(east, topic, some(20, f"life{number}"))
            made = uuid_to_text((await east.metadata([topic])).topics[topic].topic_id)

            async def copied(made=made):
                ledger = (await read_ledgers(west, link.name)).get(here)
                return ledger is not None and (ledger.source.topic_id, ledger.records) == (made, 20)

            await eventually(copied, f"life {number} is copied")
            await east.delete_topics([topic])
        assert run.metric("isthmus_link_errors_total", what="write") == 0
        assert await run.stop() == 0
    values = [value for _, _, value, _ in await content(west, f"{link.source.alias}.{topic}")]
    assert values == [b"life%d-%d" % (life, i) for life in range(3) for i in range(20)]


async def _is_created(client, topic):
    """Deleting takes a moment, during which the name is taken."""
    try:
        await create(client, topic)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True


async def test_a_target_topic_that_was_deleted_is_made_and_filled_again(pair, clients):
    east, west = clients
    topic = fresh("refilled")
    await create(east, topic)
    link = pair.link(topic, refresh_topics_interval_s=0.5)
    target = f"{link.source.alias}.{topic}"
    async with running(link) as running_link:
        for turn in range(5):
            await produce(east, topic, some(20, f"before{turn}"))
        await copied_to(west, link, topic, 100)
        old = (await read_ledgers(west, link.name))[TopicPartition(topic, 0)]
        await west.delete_topics([target])
        for turn in range(5):  # while it is deleted and made again
            await produce(east, topic, some(20, f"during{turn}"))

        async def refilled():
            now = (await read_ledgers(west, link.name))[TopicPartition(topic, 0)]
            return now.target.topic_id != old.target.topic_id and now.next_source_offset == 200

        await eventually(refilled, "the new target topic is filled")
        assert await running_link.stop() == 0
    assert await content(west, target) == await content(east, topic)


async def test_a_batch_that_the_target_refuses_stops_its_partition_alone(pair, clients):
    east, west = clients
    topic = fresh("large")
    await create(east, topic, 2)
    link = pair.link(topic, sync_topic_configs=False, retry_refused_s=1.0)
    target = f"{link.source.alias}.{topic}"
    await create(west, target, 2, max_message_bytes="2000")
    await produce(east, topic, some(5, "small"))
    await produce(east, topic, [Record(0, T0, b"k", bytes(5000))])
    await produce(east, topic, some(5, "behind"))
    async with running(link) as running_link:
        await eventually(lambda: _state(running_link, topic, "refused"), "the partition is refused")
        assert "MESSAGE_TOO_LARGE" in running_link.partition(topic)["reason"]
        await produce(east, topic, some(50), 1)
        await copied_to(west, link, topic, 50, 1)
        assert len(await content(west, target)) == 5
        await west.alter_configs({target: {"max.message.bytes": "100000"}})
        await copied_to(west, link, topic, 11)
        assert await running_link.stop() == 0
    assert await content(west, target) == await content(east, topic)
