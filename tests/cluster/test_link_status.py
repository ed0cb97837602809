"""What `isthmus links status` says of a link that does not copy: state, reason, since when, what to do."""

import asyncio
import json
import re
import socket
import time
import urllib.request

import confluent_kafka
import pytest

from protocol.client import ClusterClient
from protocol.types import TopicPartition
from replicator.link_report import link_report
from replicator.progress import ProgressStore
from replicator.rest.app import make_app
from replicator.rest.server import listen, serving
from replicator.workers import asking
from replicator.workers.control import Scope
from replicator.workers.membership import Membership
from replicator.workers.messages import PROTOCOL_NAME, PROTOCOL_TYPE
from tests.cluster.link_commands import declared, link_status
from tests.cluster.links import copied_to, create, eventually, fresh, produce, running, some

pytestmark = pytest.mark.cluster


async def stands(link, **wanted):
    """Waits until the link's standing, as any host may ask for it, has these words; that standing."""

    async def so():
        standing = (await link_report(link)).standing
        return all(str(words) in str(standing[name]) for name, words in wanted.items())

    await eventually(so, f"{link.name} stands as {wanted}")
    return (await link_report(link)).standing


async def test_a_take_over_that_waits_for_mirrormaker_says_so_and_what_to_do(pair, clients, tmp_path):
    east, west = clients
    east_alias = pair.link("x").source.alias
    tag = int(east_alias.removeprefix("east"))
    topic = fresh("waits")
    taken = {
        "offsets_topic": f"mm2-offsets.{east_alias}.internal",
        "group": fresh("mm2-workers"),
    }
    link = pair.link(topic, number=tag, take_over=taken, heartbeats_replication=False)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": pair.west, "group.id": taken["group"], "session.timeout.ms": 10_000}
    )
    await create(east, topic)
    await create(west, taken["offsets_topic"], cleanup_policy="compact")
    await produce(east, topic, some(3))
    consumer.subscribe([taken["offsets_topic"]])

    async def joined():
        consumer.poll(0)
        return bool((await west.describe_groups([taken["group"]]))[taken["group"]].members)

    await eventually(joined, "MirrorMaker 2's worker is a member")
    began_ms = time.time() * 1000
    async with running(link) as process:
        found = await stands(link, state="starting", reason="still copies")
        assert "MirrorMaker 2" in found["waits_for"]
        assert taken["group"] in found["reason"]
        assert found["to_do"].startswith("stop it")
        assert began_ms - 1000 < found["since_ms"] <= time.time() * 1000
        own = process.status.to_json()
        assert {name: own[name] for name in found} == found
        code, out = await link_status(link, declared(link, tmp_path, "heartbeats_replication: false"))
        assert code == 0
        lines = out.splitlines()
        assert lines[0].startswith("state: starting since 2")
        assert "MirrorMaker 2 still copies" in lines[0]
        assert lines[1].startswith("to do: stop it")
        assert "at_target" not in out  # and no empty table
        again = (await link_report(link)).standing
        assert again["since_ms"] == found["since_ms"]  # it waits since the first time
        await asyncio.to_thread(consumer.close)
        await copied_to(west, link, topic, 3)
        assert (await stands(link, state="running"))["reason"] == ""


async def test_a_link_whose_source_does_not_answer_says_so_at_its_target(pair, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{unused.getsockname()[1]}"
        link = pair.link(fresh("away"))
        link = link.model_copy(update={"source": link.source.model_copy(update={"bootstrap": nobody})})
        found = (await link_report(link)).standing
        assert (found["state"], found["since_ms"]) == ("not running", None)
        assert "Connection refused" in found["reason"]
        assert f"isthmus replicate FILE --link '{link.name}'" in found["to_do"]
        async with running(link) as process:
            reason = f"{nobody}: cannot connect: Connection refused"
            found = await stands(link, state="connecting", reason=reason)
            assert "start its brokers" in found["to_do"]
            assert found["since_ms"] <= time.time() * 1000
            (worker,) = (await link_report(link)).workers
            assert worker["problems_since"] == {link.source.alias: pytest.approx(found["since_ms"], abs=5000)}
            assert await process.stop() == 1
        assert (await link_report(link)).workers == []  # nothing of it is left to tell


async def test_a_worker_that_the_others_keep_waiting_says_for_what(pair, clients):
    """One that hangs in the group holds it up until its session is over."""
    _, west = clients
    link = pair.link(fresh("hangs"))
    hangs = Membership(
        west,
        link.workers_group,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=PROTOCOL_NAME,
        session_s=60,
        rebalance_s=60,
    )
    await hangs.join(b"hangs")
    await hangs.sync({hangs.member_id: b""})
    async with running(link) as process:
        await stands(link, state="starting", waits_for="the group", to_do="one that hangs")
        (worker,) = (await link_report(link)).workers
        assert (worker["partitions"], worker["silent"]) == (0, False)
        await hangs.leave()
        await stands(link, state="running")
        assert await process.stop() == 0
    found = (await link_report(link)).standing
    assert found["state"] == "not running"
    assert "ever" not in found["reason"]


async def test_a_paused_partition_says_that_its_records_are_lost_before_it_goes_on(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("lost")
    link = pair.link(topic, heartbeats_replication=False)
    file = declared(link, tmp_path, "heartbeats_replication: false")
    await create(east, topic)
    await produce(east, topic, some(5))
    async with running(link) as process:
        await copied_to(west, link, topic, 5)
        await asking.pause(link, Scope(topic, 0), asking.wish("maintenance", "me"))

        async def paused():
            return process.partition(topic).get("state") == "paused"

        await eventually(paused, "the partition is paused")
        await produce(east, topic, some(10))
        assert (await link_status(link, file))[0] == 0
        await east.delete_records({TopicPartition(topic, 0): 12})
        code, out = await link_status(link, file, "--json")
        (row,) = json.loads(out)["partitions"]
        assert (code, row["lost"], row["gaps"], row["lag"]) == (3, [5, 12], [], 10)

        async def counted(offsets):
            return process.metric("isthmus_link_lost_offsets", topic=topic, partition="0") == offsets

        await eventually(lambda: counted(7), "the metric tells of them")
        code, out = await link_status(link, file)
        assert code == 3
        assert f"lost: {topic}-0 source offsets 5 to 12 are gone from the source" in out
        await asking.resume(link, Scope(topic, 0))
        await copied_to(west, link, topic, 15)
        code, out = await link_status(link, file, "--json")
        (row,) = json.loads(out)["partitions"]
        assert (code, row["lost"]) == (3, None)
        assert [gap[:2] for gap in row["gaps"]] == [[5, 12]]
        await eventually(lambda: counted(0), "a gap is on record, and is not lost twice")


async def test_how_late_records_are_is_told_by_topic_and_by_partition(pair, clients, tmp_path):
    """By command and by REST; what is older than an hour does not count."""
    east, west = clients
    live, old = fresh("live"), fresh("old")
    link = pair.link(f"{live}|{old}", heartbeats_replication=False)
    file = declared(link, tmp_path, "heartbeats_replication: false")
    for topic in (live, old):
        await create(east, topic, 2)
    await produce(east, old, some(9, time_ms=1_000_000_000_000))
    await produce(east, live, some(20, time_ms=int(time.time() * 1000) - 120_000))
    await produce(east, live, some(5), 1)
    async with running(link) as process:
        await copied_to(west, link, old, 9)
        await copied_to(west, link, live, 20)
        await copied_to(west, link, live, 5, 1)

        async def told():
            return (await link_report(link)).latencies.get(live, {}).get("records") == 25

        await eventually(told, "the worker has told of all records")
        report = await link_report(link)
        assert report.latencies.keys() == {live}
        found = report.latencies[live]
        assert 120 <= found["p50"] <= found["p99"] <= found["max"] < 240
        rows = {(row["topic"], row["partition"]): row["latency"] for row in report.rows}
        assert rows[live, 0]["p50"] >= 120 > rows[live, 1]["max"]
        assert rows[old, 0] is None
        own = process.partition(live, 1)
        assert own["latency"].keys() == {"p50", "p99", "max"}
        code, out = await link_status(link, file)
        assert code == 0
        assert "p99 ms" in out
        assert not re.search("partition +p50 ms", out)
        code, out = await link_status(link, file, "--partitions")
        assert re.search("partition +p50 ms", out)
        listening, url = listen("127.0.0.1", 0)

        def read(path):
            with urllib.request.urlopen(f"{url}/v1/links{path}", timeout=30) as answer:
                return json.loads(answer.read())

        async with serving(make_app({link.name: link}, lambda _: process.status.to_json()), listening):
            name = link.name.replace("->", "-to-")
            topic = await asyncio.to_thread(read, f"/{name}/topics/{live}")
            assert topic["latency"]["records"] == 25
            late = {one["partition"]: one["latency"]["max"] > 60 for one in topic["partitions"]}
            assert late == {0: True, 1: False}
            whole = await asyncio.to_thread(read, f"/{name}")
            assert whole["latencies"].keys() == {live}
            assert whole["standing"]["state"] == "running"
            (one,) = await asyncio.to_thread(read, "")
            assert (one["state"], one["waits_for"]) == ("running", "")


async def test_one_topic_or_partition_can_be_asked_for_and_each_has_its_lane(pair, clients, tmp_path):
    east, west = clients
    small, other = fresh("small"), fresh("other")
    link = pair.link(f"{small}|{other}", heartbeats_replication=False)
    file = declared(link, tmp_path, "heartbeats_replication: false")
    for topic in (small, other):
        await create(east, topic, 2)
    for record in some(40):
        await produce(east, small, [record])
    await produce(east, small, some(10), 1)
    await produce(east, other, some(3))
    async with running(link):
        await copied_to(west, link, small, 40)
        await copied_to(west, link, small, 10, 1)
        await copied_to(west, link, other, 3)

        async def merged():
            rows = (await link_report(link)).rows
            return [(row["lane"], bool(row["lane_reason"])) for row in rows if row["topic"] == small] == [
                ("merge", True),
                ("raw", False),
            ]

        await eventually(merged, "each partition's own lane is told")
        code, out = await link_status(link, file, "--topic", small, "--json")
        assert (code, [row["partition"] for row in json.loads(out)["partitions"]]) == (0, [0, 1])
        assert json.loads(out)["latencies"].keys() == {small}
        code, out = await link_status(link, file, "--topic", small, "--partition", "1")
        assert re.search(rf"{small} +1 .* raw ", out)
        assert not re.search(rf"{small} +0 ", out)
        assert other not in out
        assert (await link_status(link, file, "--topic", small, "--partition", "7"))[0] == 1
        assert (await link_status(link, file, "--partition", "1"))[0] == 2


async def test_a_link_that_cannot_make_its_progress_topic_says_so_where_it_runs(pair, clients):
    """At the target there is no place for it to say so; what is known there is that nobody has."""
    link = pair.link(fresh("nowhere"), internal_replication_factor=3)
    async with running(link) as process:

        async def waits():
            return "REPLICATION_FACTOR" in str(process.status.to_json().get("reason"))

        await eventually(waits, "the process says why it waits")
        own = process.status.to_json()
        assert own["state"] == "starting"
        assert "progress topic" in own["waits_for"]
        assert f"isthmus links check '{link.name}'" in own["to_do"]
        found = (await link_report(link)).standing
        assert (found["state"], found["since_ms"]) == ("not running", None)
        assert await process.stop() == 0


async def test_a_link_that_waits_for_what_a_dead_worker_left_open_says_so(pair, clients, monkeypatch):
    """The target's coordinator takes its time with a producer of a worker that is gone."""
    east, west = clients
    topic = fresh("fenced")
    link = pair.link(topic, exactly_once=True, heartbeats_replication=False)
    await create(east, topic)
    await produce(east, topic, some(3))
    store = ProgressStore(west, link.progress_topic)
    await store.load()
    await store.save_transactional_id(f"{link.transactional_id}.gone", "somebody-gone")
    done, fence = asyncio.Event(), ClusterClient.init_transactional_producer

    async def slow(client, name, *rest, **more):
        if name.endswith(".gone"):
            await done.wait()
        return await fence(client, name, *rest, **more)

    monkeypatch.setattr(ClusterClient, "init_transactional_producer", slow)
    async with running(link) as process:
        found = await stands(
            link, state="starting", waits_for="workers that are gone", to_do="transaction_timeout_s"
        )
        assert found["since_ms"] <= time.time() * 1000
        done.set()
        await copied_to(west, link, topic, 3)
        assert await process.stop() == 0
