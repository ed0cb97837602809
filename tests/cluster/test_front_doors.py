"""`isthmus copy` and `isthmus replicate` with an MM2 properties file, as people run them on two clusters."""

import asyncio
import json
import signal
import socket
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.client import Committed
from protocol.records import Codec, Record
from protocol.types import TopicPartition
from replicator.copying import CopyError, CopyRequest, plan_copy
from replicator.layouts import OffsetSync
from replicator.origin import hops
from replicator.progress import read_ledgers
from replicator.renaming import Rename
from replicator.settings import ClusterEnd, LinkSettings, TakeOver
from tests.cluster.links import (
    content,
    create,
    eventually,
    fresh,
    produce,
    records,
    running,
    some,
)
from tests.support.commands import begun, ended, replicating

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

BOUND_S = 120.0


async def run(*arguments):
    return await ended(await begun(*arguments))


def ends(pair):
    return ("--from", pair.east, "--to", pair.west)


async def test_a_copy_until_now_ends_by_itself_and_the_next_one_goes_on(pair, clients):
    east, west = clients
    topic = fresh("orders")
    await create(east, topic, 2, retention_ms="12345678")
    await produce(east, topic, some(300, "zero"), 0, Codec.ZSTD)
    await produce(east, topic, some(40, "one"), 1)
    what = (*ends(pair), "--topics", f"{topic}.*", "--rename", r"(orders.*)=old.\1", "--name", topic)

    code, out, err = await run("copy", *what, "--dry-run")
    assert code == 0, err
    assert f"old.{topic}" in out
    assert "will be made" in out
    assert f"old.{topic}" not in (await west.metadata(None)).topics

    code, out, err = await run("copy", *what, "--until-now", "--json")
    assert code == 0, err
    said = json.loads(out)
    assert (said["records"], said["left"], said["arrived"]) == (340, {}, True)
    for partition in (0, 1):
        here, there = await content(east, topic, partition), await content(west, f"old.{topic}", partition)
        assert here == there
    (configs,) = (await west.describe_configs([f"old.{topic}"])).values()
    assert configs["retention.ms"].value == "12345678"

    code, out, err = await run("copy", *what, "--until-now", "--json")
    assert (code, json.loads(out)["records"]) == (0, 0), err
    await produce(east, topic, some(7, "later"), 1)
    code, out, err = await run("copy", *what, "--until-now")
    assert code == 0, err
    assert "copied 7 records" in out
    assert await content(east, topic, 1) == await content(west, f"old.{topic}", 1)


async def test_a_copy_takes_in_topics_that_were_not_asked_for_before(pair, clients):
    """They are old, not born since the first start: what retention took before is no gap."""
    east, west = clients
    first, second = fresh("first"), fresh("second")
    for topic in (first, second):
        await create(east, topic)
        await produce(east, topic, some(5, topic))
    for topics in (first, f"{first},{second}"):
        code, _, err = await run("copy", *ends(pair), "--topics", topics, "--name", first, "--until-now")
        assert code == 0, err
    assert [len(await records(west, topic)) for topic in (first, second)] == [5, 5]


async def test_a_copy_into_another_topic_and_back_goes_on_in_each(pair, clients):
    """Progress belongs to the topic at the target, and so do the records that are counted."""
    east, west = clients
    topic = fresh("late")
    await create(east, topic)
    what = (*ends(pair), "--topics", topic, "--name", topic, "--until-now", "--json")
    into_other = ("--rename", f"{topic}={topic}-2")
    for tag, rename, copied in (
        ("one", (), 10),
        ("two", into_other, 20),
        ("three", (), 20),
        ("four", into_other, 20),
        ("", into_other, 0),
        ("", (), 10),
    ):
        if tag:
            await produce(east, topic, some(10, tag))
        code, out, err = await run("copy", *what, *rename)
        assert code == 0, err
        said = json.loads(out)
        assert (said["records"], said["arrived"]) == (copied, True), (tag, said)
        there = f"{topic}-2" if rename else topic
        assert await content(east, topic) == await content(west, there), tag
    await west.delete_topics([topic])
    code, out, err = await run("copy", *what)  # what was deleted is filled again, and counted
    assert (code, json.loads(out)["records"]) == (0, 40), err
    assert await content(east, topic) == await content(west, topic)


async def test_a_naming_policy_that_is_changed_and_changed_back_doubles_nothing(pair, clients):
    east, west = clients
    topic = fresh("policy")
    await create(east, topic)
    for number, naming in enumerate(("prefix", "identity", "prefix"), start=1):
        await produce(east, topic, some(10, str(number)))
        settings = LinkSettings(
            source=ClusterEnd(alias=f"{topic}-A", bootstrap=pair.east),
            target=ClusterEnd(alias=f"{topic}-B", bootstrap=pair.west),
            topics=(topic,),
            groups=(),
            naming=naming,
        )
        there = topic if naming == "identity" else f"{topic}-A.{topic}"
        async with running(settings) as link:

            async def complete(there=there, expected=10 * number):
                return len(await records(west, there)) >= expected

            await eventually(complete, "everything is there", BOUND_S)
            assert await link.stop() == 0
        assert await content(east, topic) == await content(west, there)


async def test_a_topic_that_holds_something_else_is_not_written_behind_without_a_word(pair, clients):
    """E.g. the same records, copied by somebody else: all would be there twice."""
    east, west = clients
    topic = fresh("taken")
    for cluster in clients:
        await create(cluster, topic)
    await produce(east, topic, some(5, "here"))
    await produce(west, topic, some(3, "there"))
    what = (*ends(pair), "--topics", topic, "--name", topic, "--until-now")
    code, out, err = await run("copy", *what)
    assert code == 2, out
    assert f"{topic} (3)" in err
    assert "--append" in err
    code, out, _ = await run("copy", *what, "--dry-run")
    assert "holds 3 others: needs --append" in out
    assert len(await records(west, topic)) == 3
    for _ in range(2):  # once it has progress there, it goes on
        code, _, err = await run(
            "copy", *what, *(() if len(await records(west, topic)) > 3 else ("--append",))
        )
        assert code == 0, err
        assert len(await records(west, topic)) == 8


async def test_a_killed_copy_goes_on_and_writes_nothing_twice(pair, clients):
    east, west = clients
    topic = fresh("killed")
    await create(east, topic)
    for number in range(40):
        await produce(east, topic, some(500, f"{number}" + "x" * 200))
    what = (*ends(pair), "--topics", topic, "--name", topic)
    process = await begun("copy", *what)
    try:

        async def some_arrived():
            return len(await records(west, topic)) > 0

        await eventually(some_arrived, "the copy writes", BOUND_S)
    finally:
        process.kill()
        await ended(process)
    code, _, err = await run("copy", *what, "--until-now", "--json")
    assert code == 0, err
    assert await content(east, topic) == await content(west, topic)


async def test_what_cannot_be_copied_is_said_at_once(pair, clients):
    east, _ = clients
    topic, other = fresh("said"), fresh("said-too")
    await create(east, topic)
    await create(east, other)
    same, rename = (pair.east, pair.east), (Rename.parse(f"{topic}|{other}={topic}-copy"),)
    for ends_, topics, rules, expected in (
        ((pair.east, pair.west), "no-such-topic", (), "no topic of"),
        ((pair.east, pair.west), "said.*", rename, "would both be called"),
        (same, topic, (), "one cluster"),
        ((pair.east, pair.west), topic, (Rename.parse("(.*)=\\1/x"),), "is no topic name"),
        (same, "said.*", (Rename.parse("(.*)=said-again-\\1"),), "again and again"),
    ):
        with pytest.raises(CopyError, match=expected):
            await plan_copy(CopyRequest(*ends_, (topics,), rename=rules))
    slip = (Rename.parse(f"{topic}={topic}-copy"), Rename.parse("sad=gone"))
    asked = CopyRequest(pair.east, pair.west, (topic,), rename=slip)
    idle = "--rename sad=gone concerns no topic that is to be copied"
    assert (await plan_copy(asked)).idle == (idle,)  # it may be born later
    with pytest.raises(CopyError, match=rf"{idle} .to be copied: {topic}\)"):
        await plan_copy(replace(asked, until_now=True))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{unused.getsockname()[1]}"
        code, _, err = await run("copy", "--from", nobody, "--to", pair.west, "--topics", "x")
        assert (code, nobody in err, "nothing was copied" in err) == (1, True, True)


def properties(path: Path, pair, extra=""):
    path.write_text(
        f"""
        clusters = A, B
        A.bootstrap.servers = {pair.east}
        B.bootstrap.servers = {pair.west}
        A->B.enabled = true
        B->A.enabled = true
        topics = doors.*
        groups = doors.*
        replication.factor = 1
        offset-syncs.topic.replication.factor = 1
        checkpoints.topic.replication.factor = 1
        heartbeats.topic.replication.factor = 1
        offset.storage.replication.factor = 1
        tasks.max = 4
        {extra}
        """
    )
    return path


async def test_a_properties_file_of_mirrormaker_runs_both_its_links(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("doors")
    file = properties(tmp_path / "mm2.properties", pair)
    for client, tag in ((east, "from-a"), (west, "from-b")):
        await create(client, topic)
        await produce(client, topic, some(20, tag))

    code, out, err = await run("replicate", file, "--check", "--json")
    assert code == 0, err
    said = json.loads(out)
    assert [link["link"] for link in said["links"]] == ["A->B", "B->A"]
    (row,) = (row for row in said["links"][0]["topics"] if row["topic"] == topic)
    assert (row["at_target"], row["partitions"], row["exists"]) == (f"A.{topic}", 1, False)
    assert [remark["setting"] for remark in said["remarks"]] == ["tasks.max"]

    async with replicating(file, "--metrics-port", "0") as process:
        said = [(await asyncio.wait_for(process.stdout.readline(), BOUND_S)).decode() for _ in "AB"]
        ready, other = sorted(said)
        assert ("A->B ready" in ready, "B->A ready" in other) == (True, True)

        async def both_ways():
            return len(await records(west, f"A.{topic}")) == len(await records(east, f"B.{topic}")) == 20

        await eventually(both_ways, "both links copy", BOUND_S)
        port = ready.rsplit(":", 1)[1].split("/")[0]
        with await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        for link in ("A->B", "B->A"):
            assert f'isthmus_link_records_total{{link="{link}",partition="0",topic="{topic}"}} 20.0' in text
        assert text.count("# TYPE isthmus_link_records_total ") == 1
        assert "_created" not in text
        assert 'isthmus_link_partition_latency_quantile_seconds{link="A->B",partition="0"' in text
        process.send_signal(signal.SIGTERM)
        code, _, err = await ended(process)
    assert code == 0, err
    assert "tasks.max: a link has no tasks" in err
    names = (await west.metadata(None)).topics
    assert not [name for name in names if name.startswith(("A.B.", "B.A."))]  # nothing went round


async def test_a_link_that_never_reaches_its_target_says_so_and_ends_with_1(pair, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{unused.getsockname()[1]}"
        file = properties(tmp_path / "mm2.properties", pair, f"B.bootstrap.servers = {nobody}")
        text = file.read_text().replace(f"B.bootstrap.servers = {pair.west}\n", "")
        file.write_text(text)
        async with replicating(file, "--clusters", "B") as process:
            line = (await asyncio.wait_for(process.stdout.readline(), BOUND_S)).decode()
            assert "A->B is not ready" in line
            assert "Connection refused" in line
            process.send_signal(signal.SIGTERM)
            code, out, err = await ended(process)
    assert (code, "ready" in out) == (1, False), out
    assert f"B cannot be reached (PLAINTEXT at {nobody}): {nobody}: cannot connect: Connection refused" in err
    assert "has copied nothing: B cannot be reached" in err


async def test_what_mirrormaker_left_behind_is_taken_over(pair, clients, tmp_path):
    """Its topics as it writes them (for the real one see tests/interop): what it copied behind its stored
    progress is recognised, though its batches are other ones, and a group far back is translated by them."""
    east, west = clients
    topic = fresh("doors-taken")
    there = f"E.{topic}"
    group = f"{topic}-group"
    await create(east, topic, 2)
    await create(west, there, 2)
    for client, name in (
        (east, topic),
        (west, there),
    ):  # MirrorMaker 2 was killed before it stored any progress
        await produce(client, name, some(30, time_ms=1_700_000_000_000), 1)
    everything = some(500)
    await produce(east, topic, everything, codec=Codec.ZSTD)
    await produce(west, there, some(13, "foreign"))
    for start in range(0, 420, 60):  # 420 of them copied, in batches of its own
        await produce(west, there, everything[start : start + 60], codec=Codec.LZ4)
    key = ["MirrorSourceConnector", {"cluster": "E", "partition": 0, "topic": topic}]
    await create(west, "mm2-offsets.E.internal", 2, cleanup_policy="compact")
    stored = Record(0, 0, json.dumps(key).encode(), b'{"offset":299}')
    await produce(west, "mm2-offsets.E.internal", [stored], 1)
    syncs = [OffsetSync(topic, 0, up, up + 13) for up in (0, 101, 202, 404)]
    await create(east, "mm2-offset-syncs.F.internal", cleanup_policy="compact")
    syncs.append(OffsetSync(topic, 1, 0, 0))
    rows = [Record(0, 0, sync.key(), sync.value()) for sync in syncs]
    await produce(east, "mm2-offset-syncs.F.internal", rows)
    await east.commit(group, {TopicPartition(topic, 0): Committed(77)})
    settings = LinkSettings(
        source=ClusterEnd(alias="E", bootstrap=pair.east),
        target=ClusterEnd(alias="F", bootstrap=pair.west),
        topics=(topic,),
        groups=(group,),
        take_over=TakeOver.of("E"),
    )
    async with running(settings) as link:

        async def complete():
            return len(await records(west, there)) >= 513

        await eventually(complete, "the link goes on", BOUND_S)

        async def translated():
            return (await west.committed(group)).get(TopicPartition(there, 0), Committed(-1)).offset == 90

        await eventually(translated, "the group is translated by the syncs", BOUND_S)
        (text,) = (note for note, _ in link.partition(topic)["notes"])
        assert "at source offset 420 (it had stored 300); 16 records" in text
        assert await link.stop() == 0
    assert await content(east, topic) == (await content(west, there))[13:]
    ledger = (await read_ledgers(west, "E->F"))[TopicPartition(topic, 0)]
    assert [tuple(run) for run in ledger.runs] == [(0, 13, 500)]
    assert await content(east, topic, 1) == await content(west, there, 1)


async def test_identical_names_both_ways_never_go_round(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("doors-round")
    extra = f"""
        replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
        origin.headers.enabled = true
        topics = {topic}
        clusters = C, D
        C.bootstrap.servers = {pair.east}
        D.bootstrap.servers = {pair.west}
        C->D.enabled = true
        D->C.enabled = true
    """
    file = properties(tmp_path / "mm2.properties", pair, extra)
    text = "\n".join(
        line for line in file.read_text().splitlines() if not line.strip().startswith(("A", "B"))
    )
    file.write_text(text)
    for client, tag in ((east, "born-c"), (west, "born-d")):
        await create(client, topic)
        await produce(client, topic, some(20, tag), codec=Codec.LZ4)
    async with replicating(file):

        async def through():
            ledgers = [
                (await read_ledgers(west, "C->D")).get(TopicPartition(topic, 0)),
                (await read_ledgers(east, "D->C")).get(TopicPartition(topic, 0)),
            ]
            return all(ledger is not None and ledger.next_source_offset == 40 for ledger in ledgers)

        await eventually(through, "both links have read everything, their own copies too", BOUND_S)
        for client, own, other in ((east, "born-c", "born-d"), (west, "born-d", "born-c")):
            found = [
                (record.value.decode()[:6], bool(hops(record))) for record in await records(client, topic)
            ]
            assert found == [(own, False)] * 20 + [(other, True)] * 20


async def test_a_new_topic_of_a_properties_file_is_seen_within_seconds(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("doors-new")
    async with replicating(properties(tmp_path / "mm2.properties", pair), "--clusters", "B") as process:
        assert b"A->B ready" in await asyncio.wait_for(process.stdout.readline(), BOUND_S)

        async def copies():
            return "A.heartbeats" in (await west.metadata(None)).topics

        await eventually(copies, "the link runs", BOUND_S)
        await create(east, topic)
        await produce(east, topic, some(3))

        async def arrived():
            return len(await records(west, f"A.{topic}")) == 3

        await eventually(arrived, "the new topic is copied", 20)


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("topcis = x", "did you mean 'topics'?"),
        ("replication.policy.class = IdentityReplicationPolicy", "would go round for ever"),
    ],
)
async def test_a_wrong_file_starts_nothing(pair, tmp_path, extra, expected):
    file = properties(tmp_path / "mm2.properties", pair, extra)
    code, _, err = await run("replicate", file)
    assert (code, expected in err) == (2, True), err
