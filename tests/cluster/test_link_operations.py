"""What operators do to links and topics: delete, create again, unset, start twice, stop a cluster; ask."""

import asyncio
import signal
from dataclasses import replace

import pytest

from protocol.client import Committed
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from replicator.link_report import link_report
from replicator.naming import HEARTBEATS
from replicator.progress import read_ledgers
from replicator.workers import asking
from replicator.workers.control import Scope
from tests.cluster.links import (
    LinkProcess,
    Pair,
    content,
    copied_to,
    create,
    eventually,
    fresh,
    produce,
    running,
    some,
)
from tests.support.broker import BrokerProcess
from tests.support.zookeeper import fresh_chroot

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def brokers(zookeeper_server, tmp_path_factory):
    made = {
        name: BrokerProcess(tmp_path_factory.mktemp(name), fresh_chroot(zookeeper_server), 1)
        for name in ("east", "west")
    }
    try:
        for broker in made.values():
            broker.start()
        yield made
    finally:
        for broker in made.values():
            broker.kill()


@pytest.fixture
def pair(brokers):
    return Pair("isthmus", brokers["east"].bootstrap, brokers["west"].bootstrap)


async def states(link):
    """(state, lag) by topic, and the report they come from; heartbeats, which never rest, are left out."""
    report = await link_report(link)
    rows = [row for row in report.rows if row["topic"] != HEARTBEATS]
    return {row["topic"]: (row["state"], row["lag"]) for row in rows}, replace(report, rows=rows)


async def test_a_deleted_source_topic_hides_the_lag_of_no_other(pair, clients):
    east, west = clients
    gone, kept = fresh("deleted"), fresh("kept")
    for topic in (gone, kept):
        await create(east, topic)
        await produce(east, topic, some(10))
    link = pair.link(f"{gone}|{kept}")
    async with running(link) as process:
        for topic in (gone, kept):
            await copied_to(west, link, topic, 10)
        await east.delete_topics([gone])

        async def noticed():
            return process.partition(gone).get("state") == "gone"

        await eventually(noticed, "the link has noticed that the topic is gone")
        assert await process.stop() == 0
    await produce(east, kept, some(7))
    found, report = await states(link)
    assert found == {gone: ("deleted at the source", None), kept: ("behind", 7)}
    assert (report.differences, report.source_problem) == (0, "")


async def test_a_running_link_shows_lag_while_a_topic_is_deleted(pair, clients):
    """The partition that the target refuses has not noticed that its topic is gone; others have their lag."""
    east, west = clients
    refused, other = fresh("refused-gone"), fresh("refused-other")
    for topic in (refused, other):
        await create(east, topic)
    link = pair.link(f"{refused}|{other}", sync_topic_configs=False, refresh_topics_interval_s=0.3)
    async with running(link) as process:
        for topic in (refused, other):
            await copied_to(west, link, topic, 0)
            await west.alter_configs({f"{link.source.alias}.{topic}": {"max.message.bytes": "60"}})
        for topic in (refused, other):
            await produce(east, topic, some(50))

        async def both_refused():
            return all(process.partition(topic).get("state") == "refused" for topic in (refused, other))

        await eventually(both_refused, "both partitions are refused")
        await east.delete_topics([refused])
        await produce(east, other, some(5))

        async def counted():
            return process.partition(other).get("lag") == 55

        await eventually(counted, "the lag of the other topic is known")
        assert await process.stop() == 3


async def test_a_topic_created_again_is_told_until_it_is_copied_and_is_no_gap(pair, clients):
    east, west = clients
    topic = fresh("again")
    await create(east, topic)
    await produce(east, topic, some(10))
    link = pair.link(topic, refresh_topics_interval_s=0.5)
    async with running(link) as process:
        await copied_to(west, link, topic, 10)
        await east.delete_topics([topic])
        await eventually(lambda: _recreated(east, topic), "the topic is created again")
        await produce(east, topic, some(4))

        await eventually(lambda: _copied(link, topic), "the new topic is copied")
        assert await process.stop() == 0
    _, report = await states(link)
    [row] = report.rows
    assert (row["gaps"], report.differences) == ([], 0)
    assert "re-created" in row["notes"][0]
    assert row["next_source_offset"] == 4


async def test_a_topic_created_again_while_the_link_was_down_is_a_gap_of_unknown_length(pair, clients):
    east, west = clients
    topic = fresh("again-down")
    await create(east, topic)
    await produce(east, topic, some(10))
    link = pair.link(topic)
    async with running(link) as process:
        await copied_to(west, link, topic, 10)
        assert await process.stop() == 0
    await east.delete_topics([topic])
    await eventually(lambda: _recreated(east, topic), "the topic is created again")
    assert (await states(link))[0][topic][0] == "created again at the source, not copied yet"
    await produce(east, topic, some(3))
    async with running(link) as process:
        await eventually(lambda: _copied(link, topic), "the new topic is copied")
        assert await process.stop() == 3
    [row] = (await states(link))[1].rows
    assert [(start, end) for start, end, _ in row["gaps"]] == [(10, 10)]


async def test_a_topic_created_again_that_brought_nothing_since_the_start_is_no_gap(pair, clients):
    """Found by trying: only data told a link where its source ends, so an idle topic was a gap."""
    east, west = clients
    topic = fresh("again-idle")
    await create(east, topic)
    await produce(east, topic, some(10))
    link = pair.link(topic, refresh_topics_interval_s=0.5)
    async with running(link) as process:
        await copied_to(west, link, topic, 10)
        assert await process.stop() == 0
    async with running(link) as process:

        async def runs():
            return process.partition(topic).get("state") == "running"

        await eventually(runs, "the link reads")
        await east.delete_topics([topic])
        await eventually(lambda: _recreated(east, topic), "the topic is created again")
        await produce(east, topic, some(4))
        await eventually(lambda: _copied(link, topic), "the new topic is copied")
        assert await process.stop() == 0


async def test_a_topic_created_again_while_it_was_paused_is_a_gap(pair, clients):
    """Found by trying: what was written during the pause was lost, and "all of it was copied" was noted."""
    east, west = clients
    topic = fresh("again-paused")
    await create(east, topic)
    await produce(east, topic, some(10))
    link = pair.link(topic, refresh_topics_interval_s=0.5)
    async with running(link) as process:
        await copied_to(west, link, topic, 10)
        await asking.pause(link, Scope(topic), asking.wish("maintenance", "me"))

        async def stands():
            return process.partition(topic).get("state") == "paused"

        await eventually(stands, "the topic is paused")
        await produce(east, topic, some(5, "lost"))
        await east.delete_topics([topic])
        await eventually(lambda: _recreated(east, topic), "the topic is created again")
        await produce(east, topic, some(3))
        await asking.resume(link, Scope(topic))
        await eventually(lambda: _copied(link, topic), "the new topic is copied")
        assert await process.stop() == 3
    [row] = (await states(link))[1].rows
    assert [start for start, _, _ in row["gaps"]] == [10]


async def _recreated(client, topic):
    try:
        await create(client, topic)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # deleting takes a moment
            raise
        return False
    return True


async def _copied(link, topic):
    return (await states(link))[0][topic] == ("copied", 0)


async def test_settings_that_the_source_unset_are_taken_back_and_those_of_others_stay(pair, clients):
    east, west = clients
    topic = fresh("unset")
    await create(east, topic, 1, retention_ms="86400000", segment_ms="3600000", max_message_bytes="500000")
    link = pair.link(topic, sync_topic_configs_interval_s=0.5)
    target = f"{link.source.alias}.{topic}"

    async def at_target():
        entries = (await west.describe_configs([target]))[target]
        return {name: entry.value for name, entry in entries.items() if entry.source.name == "TOPIC"}

    async with running(link) as first:
        await copied_to(west, link, topic, 0)
        await west.alter_configs({target: {"segment.bytes": "1048576"}})  # somebody at the target
        assert await first.stop() == 0
    await east.alter_configs({topic: {"retention.ms": None, "max.message.bytes": None}})
    await west.alter_configs({target: {"max.message.bytes": "900000"}})  # changed there: not the link's now
    async with running(link):

        async def taken_back():
            return "retention.ms" not in await at_target()

        await eventually(taken_back, "the setting is taken back")
        assert await at_target() == {
            "segment.ms": "3600000",
            "segment.bytes": "1048576",
            "max.message.bytes": "900000",
        }


@pytest.mark.parametrize("shared", [False, True])
async def test_a_process_that_shares_with_nobody_is_refused_and_the_first_goes_on(
    pair, clients, tmp_path, shared
):
    """As a version that knows of no workers is, beside one of its kind and beside workers."""
    east, west = clients
    topic = fresh("owner")
    await create(east, topic)
    link = pair.link(topic, shared=shared)
    second = LinkProcess(link.model_copy(update={"shared": False}), str(tmp_path / "second.log"))
    async with running(link) as first:
        await copied_to(west, link, topic, 0)
        await second.start()
        assert await second.ended() == 1
        said = (tmp_path / "second.log").read_text()
        assert f"link {link.name} is run by process" in said
        assert "stop that one first" in said
        await produce(east, topic, some(5))
        await copied_to(west, link, topic, 5)
        assert await first.stop() == 0
    async with running(link) as third:  # given up in order: no waiting
        await produce(east, topic, some(5))
        await copied_to(west, link, topic, 10)
        assert await third.stop() == 0


async def test_a_worker_is_refused_beside_a_process_that_shares_with_nobody(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("alone")
    await create(east, topic)
    link = pair.link(topic, shared=False)
    worker = LinkProcess(link.model_copy(update={"shared": True}), str(tmp_path / "worker.log"))
    async with running(link) as first:
        await copied_to(west, link, topic, 0)
        await worker.start()
        assert await worker.ended() == 1
        assert "stop that one first" in (tmp_path / "worker.log").read_text()
        await produce(east, topic, some(5))
        await copied_to(west, link, topic, 5)
        assert await first.stop() == 0


async def test_an_owner_that_was_paused_too_long_is_replaced_and_ends(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("paused")
    await create(east, topic)
    link = pair.link(topic, shared=False)
    old = LinkProcess(link, str(tmp_path / "old.log"))
    await old.start()
    try:
        await produce(east, topic, some(5, "a"))
        await copied_to(west, link, topic, 5)
        old.signal(signal.SIGSTOP)
        async with running(link) as new:
            await produce(east, topic, some(5, "b"))
            await copied_to(west, link, topic, 10)
            old.signal(signal.SIGCONT)
            assert await old.ended() == 1
            assert "was taken over by process" in (tmp_path / "old.log").read_text()
            await produce(east, topic, some(5, "c"))
            await copied_to(west, link, topic, 15)
            assert await new.stop() == 0
    finally:
        await old.kill()
    assert await content(west, f"{link.source.alias}.{topic}") == await content(east, topic)
    ledger = (await read_ledgers(west, link.name))[TopicPartition(topic, 0)]
    assert (ledger.records, ledger.differences) == (15, 0)


async def test_a_link_tells_which_of_its_clusters_does_not_answer(pair, brokers, clients):
    east, west = clients
    topic = fresh("reach")
    await create(east, topic)
    link = pair.link(topic)
    async with running(link) as process:
        await copied_to(west, link, topic, 0)

        def up(alias):
            return process.metric("isthmus_link_cluster_up", cluster=alias)

        async def both():
            return up(link.source.alias) == up(link.target.alias) == 1

        await eventually(both, "both clusters are seen")
        brokers["west"].kill()

        async def lost():
            return (up(link.source.alias), up(link.target.alias)) == (1, 0)

        await eventually(lost, "the target is missed")
        assert f"{link.target.alias} cannot be reached" in str(process.status.to_json()["problems"])
        brokers["west"].start()
        await eventually(both, "both clusters are seen again")
        await produce(east, topic, some(5))
        await copied_to(west, link, topic, 5)
        assert await asyncio.wait_for(process.stop(), 60) == 0


async def test_without_the_source_the_report_says_so_and_shows_what_is_held(pair, brokers, clients):
    east, west = clients
    topic = fresh("sourceless")
    await create(east, topic)
    await produce(east, topic, some(5))
    link = pair.link(topic)
    async with running(link) as process:
        await copied_to(west, link, topic, 5)
        assert await process.stop() == 0
    brokers["east"].kill()
    try:
        found, report = await states(link)
        assert found == {topic: ("the source does not answer", None)}
        assert report.source_problem
        assert report.rows[0]["copied"] == 5
    finally:
        brokers["east"].start()


async def _at(client, group, tp, offset):
    async def there():
        found = (await client.committed(group)).get(tp)
        return (found.offset if found is not None else None) == offset

    await eventually(there, f"{group} stands at {offset} in {tp}", 60)


async def _reason(link, group, words):
    async def said():
        standing = link.status.to_json().get("groups", {}).get(group)
        return standing is not None and words in (standing["reason"] or "")

    await eventually(said, f"{group} has the reason: {words}", 60)


async def test_a_reset_and_a_deletion_at_the_source_follow_what_the_link_had_set_and_nothing_else(
    pair, clients
):
    east, west = clients
    topic = fresh("policies")
    ours, moved, gone = f"{topic}-ours", f"{topic}-moved", f"{topic}-gone"
    link = pair.link(
        topic,
        groups=[f"{topic}.*"],
        groups_on_rewind="follow",
        groups_on_delete="delete",
        sync_group_offsets_interval_s=0.2,
    )
    here, there = TopicPartition(topic, 0), TopicPartition(f"{link.source.alias}.{topic}", 0)
    await create(east, topic)
    await produce(east, topic, some(20))
    for group in (ours, moved, gone):
        await east.commit(group, {here: Committed(15)})
    async with running(link) as running_link:
        await copied_to(west, link, topic, 20)
        for group in (ours, moved, gone):
            await _at(west, group, there, 15)
        await west.commit(moved, {there: Committed(18)})
        for group in (ours, moved):
            await east.commit(group, {here: Committed(4)})
        await _at(west, ours, there, 4)
        await _reason(running_link, moved, "it was not this link that set them")
        await _at(west, moved, there, 18)
        assert await running_link.stop() == 0
    await east.commit(ours, {here: Committed(2)})  # while nobody looks
    await east.delete_groups([moved, gone])
    async with running(link) as running_link:
        await _at(west, ours, there, 2)
        await _at(west, gone, there, None)
        await _reason(running_link, moved, "positions at the target that this link did not set")
        await _at(west, moved, there, 18)
        assert await running_link.stop() == 0
    listed = {group.group_id for group in await west.list_groups()}
    assert listed & {ours, moved, gone} == {ours, moved}


async def test_by_default_groups_are_neither_taken_back_nor_deleted(pair, clients):
    east, west = clients
    topic = fresh("kept")
    group, left = f"{topic}-back", f"{topic}-left"
    link = pair.link(topic, groups=[f"{topic}.*"], sync_group_offsets_interval_s=0.2)
    here, there = TopicPartition(topic, 0), TopicPartition(f"{link.source.alias}.{topic}", 0)
    await create(east, topic)
    await produce(east, topic, some(20))
    for name in (group, left):
        await east.commit(name, {here: Committed(15)})
    async with running(link) as running_link:
        for name in (group, left):
            await _at(west, name, there, 15)
        await east.delete_groups([left])
        await east.commit(group, {here: Committed(4)})
        await _reason(running_link, group, "not taken back")
        await _at(west, group, there, 15)
        await _at(west, left, there, 15)


async def test_after_a_restart_groups_are_translated_that_stand_in_what_was_copied_before(pair, clients):
    """KAFKA-15905: the group need not move on first, nor anything new come."""
    east, west = clients
    topic, group = fresh("restarted"), fresh("restarted-group")
    await create(east, topic)
    link = pair.link("restarted.*", sync_group_offsets_interval_s=0.3)
    mirror = f"{link.source.alias}.{topic}"
    await create(west, mirror)
    await produce(west, mirror, some(5, "foreign"))
    for _ in range(4):
        await produce(east, topic, some(10))
    async with running(link) as first:
        await copied_to(west, link, topic, 40)
        await first.stop()
    await east.commit(group, {TopicPartition(topic, 0): Committed(17)})

    async def translated():
        found = await west.committed(group)
        return {tp: at.offset for tp, at in found.items()} == {TopicPartition(mirror, 0): 22}

    async with running(link):
        await eventually(translated, "a position of before the restart is translated, exactly")
