"""`links status` and REST of mirrors: how late records are, how each partition stands, and why not."""

import asyncio
import json
import time
import urllib.request

import pytest
from typer.testing import CliRunner

from isthmus.commands.mirrors import app
from protocol.types import TopicPartition, uuid_to_text
from replicator.mirrors.report import report_of
from replicator.progress import ProgressStore
from replicator.rest.app import make_app
from replicator.rest.server import listen, serving
from tests.cluster.link_commands import declared, link_status
from tests.cluster.links import create, eventually, fresh, produce, some
from tests.cluster.mirrors import mirror_link, mirroring, same_logs

pytestmark = pytest.mark.cluster


async def test_how_late_records_are_and_how_each_partition_stands(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("late")
    link = mirror_link(pair.east, pair.west, topic)
    file = declared(link, tmp_path, "offsets: identical, naming: identity")
    assert (await report_of(link)).standing["state"] == "not running"
    await create(east, topic, 2)
    await produce(east, topic, some(20, time_ms=int(time.time() * 1000) - 120_000))
    await produce(east, topic, some(5), 1)
    async with mirroring(link) as running:
        await same_logs(east, west, topic, 2)

        async def told():
            found = (await report_of(link)).latencies.get(topic, {}).get("records") == 25
            return found and (await report_of(link)).standing["state"] == "running"

        await eventually(told, "the process has told of all records")
        report = await report_of(link)
        late = report.latencies[topic]
        assert 120 <= late["p50"] <= late["p99"] <= late["max"] < 240
        rows = {row["partition"]: row for row in report.rows}
        assert rows[0]["latency"]["p50"] >= 120 > rows[1]["latency"]["max"]
        assert [(row["copied"], row["lag"], row["at_worker"]) for row in rows.values()] == [
            (20, 0, "running"),
            (5, 0, "running"),
        ]
        own = running.to_json()
        assert own["partitions"][f"{topic}-1"]["latency"].keys() == {"p50", "p99", "max"}
        assert (own["state"], own["waits_for"]) == ("running", "")
        code, out = await link_status(link, file, "--partitions")
        assert code == 0
        assert out.startswith("state: running since")
        assert "p99 ms" in out
        listening, url = listen("127.0.0.1", 0)

        def read(path):
            with urllib.request.urlopen(f"{url}/v1/links/east-to-west{path}", timeout=30) as answer:
                return json.loads(answer.read())

        async with serving(make_app({link.name: link}, lambda _: running.to_json()), listening):
            whole = await asyncio.to_thread(read, "")
            assert (whole["standing"]["state"], whole["differences"]) == ("running", 0)
            assert whole["latencies"][topic]["records"] == 25
            one = await asyncio.to_thread(read, f"/topics/{topic}/partitions/1")
            assert (one["lag"], one["latency"]["max"] < 60) == (0, True)
        assert await running.stop() == 0
    found = await report_of(link)
    assert (found.workers, found.standing["state"]) == ([], "not running")
    assert [row["lag"] for row in found.rows if row["topic"] == topic] == [0, 0]


async def test_a_mirror_that_stands_still_says_why_and_what_it_lacks_is_told(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("still")
    link = mirror_link(pair.east, pair.west, topic)
    file = declared(link, tmp_path, "offsets: identical, naming: identity")
    await create(east, topic)
    await produce(east, topic, some(5))
    async with mirroring(link) as running:
        await same_logs(east, west, topic)
        assert await running.stop() == 0
    await produce(east, topic, some(5))
    await east.delete_records({TopicPartition(topic, 0): 8})
    code, out = await link_status(link, file)
    assert code == 3
    assert f"lost: {topic}-0 source offsets 5 to 8 are gone from the source" in out
    async with mirroring(link) as running:
        await same_logs(east, west, topic)
        code, out = await link_status(link, file, "--json")
        (row,) = json.loads(out)["partitions"]
        assert (code, row["lost"], [gap[:2] for gap in row["gaps"]]) == (3, None, [[5, 8]])
        await east.delete_topics([topic])
        await create(east, topic)

        async def stopped():
            (row,) = (await report_of(link)).rows
            return row["at_worker"] == "stopped" and "created again" in row["reason"]

        await eventually(stopped, "the status says why it is stopped")
        assert await running.stop() == 3


async def test_a_mirror_that_somebody_deleted_is_filled_anew_and_that_is_on_record(pair, clients, tmp_path):
    """While the link runs, and while it rests; each time both ids are told, and when."""
    east, west = clients
    topic = fresh("deleted")
    link = mirror_link(pair.east, pair.west, topic)
    file = declared(link, tmp_path, "offsets: identical, naming: identity")
    await create(east, topic)
    await produce(east, topic, some(5))

    async def target_id():
        return uuid_to_text((await west.metadata([topic])).topics[topic].topic_id)

    def told(again):
        async def on_record():
            former = (await report_of(link)).mirrors.get(topic, {}).get("former", [])
            return [one["target_id"] for one in former] == again

        return on_record

    async def is_on_record():
        return topic in (await ProgressStore(west, link.progress_topic).refresh()).mirrors

    async with mirroring(link) as running:
        await same_logs(east, west, topic)
        first = await target_id()
        await eventually(is_on_record, "its mirror is on record")
        await west.delete_topics([topic])
        await eventually(told([first]), "the mirror is another one now")
        await same_logs(east, west, topic)
        made_again = "isthmus_link_mirrors_made_again_total"
        assert running.registry.get_sample_value(made_again, {"link": link.name}) == 1
        second = await target_id()
        assert await running.stop() == 0  # nothing is missing
    await west.delete_topics([topic])
    async with mirroring(link) as running:
        await eventually(told([first, second]), "it was deleted while the link rested")
        await same_logs(east, west, topic)
        assert running.to_json()["mirrors"][topic]["target_topic_id"] == await target_id()
        assert await running.stop() == 0
    code, out = await link_status(link, file)
    assert code == 0
    assert f"its id was {second}, now {await target_id()}" in out
    shown = await asyncio.to_thread(CliRunner().invoke, app, ["status", link.name, "-f", str(file)])
    assert shown.exit_code == 0
    assert f"made again: {topic}, 20" in shown.stdout
    assert first in shown.stdout
