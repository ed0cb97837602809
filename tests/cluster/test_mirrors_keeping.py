"""What is kept for mirrors beside their logs: settings, a rate, gaps that somebody knows of; and what
commands about links say of them."""

import asyncio
import json
import time

import pytest
from typer.testing import CliRunner

from isthmus.commands.links import app as links
from isthmus.commands.mirrors import app as mirrors
from protocol.client import Committed
from protocol.client.mirror_calls import MIRROR_SOURCE
from protocol.records import Record
from protocol.types import TopicPartition
from replicator.acknowledgements import Acknowledgement, Difference, Kind
from replicator.mirrors.on_record import OnRecord, read_lacks
from replicator.mirrors.partition import MirrorPartition
from replicator.mirrors.standing import record_group
from replicator.progress import ProgressStore
from tests.cluster.links import create, eventually, fresh, produce, some
from tests.cluster.mirrors import log_bytes, mirror_link, mirrored, mirrored_once, mirroring, same_logs

pytestmark = pytest.mark.cluster


@pytest.fixture
def isthmus(tmp_path):
    """Runs a command on a link: exit code, standard output, standard error."""

    async def run(app, link, command, *arguments):
        file = tmp_path / "mirrors.yaml"
        ends = {end.alias: end.bootstrap for end in (link.source, link.target)}
        declared = {
            "offsets": "identical",
            "naming": "identity",
            "topics": list(link.topics),
            "groups": list(link.groups),
            "on_gap": link.on_gap,
        }
        topology = {
            "version": 1,
            "name": "kept",
            "data_directory": "data",
            "datacenters": {alias: {"description": "here"} for alias in ends},
            "clusters": {a: {"datacenter": a, "bootstrap_servers": address} for a, address in ends.items()},
            "links": {link.name: declared},
        }
        file.write_text(json.dumps(topology), encoding="utf-8")
        words = [command, link.name, *arguments, "--topology", str(file)]
        done = await asyncio.to_thread(CliRunner().invoke, app, words, catch_exceptions=False)
        return done.exit_code, done.stdout, done.stderr

    return run


async def _value(client, topic, key):
    return (await client.describe_configs([topic]))[topic][key].value


async def test_settings_follow_and_are_taken_back_after_a_restart_too(pair, clients, isthmus):
    east, west = clients
    topic = fresh("kept")
    await create(east, topic, retention_ms="7000000")
    link = mirror_link(pair.east, pair.west, topic, sync_topic_configs_interval_s=0.3)

    async def is_at(value):
        return await _value(west, topic, "retention.ms") == value

    async def noted():
        progress = await ProgressStore(west, link.progress_topic).refresh()
        return progress.settings.get(topic, {}).get("retention.ms") == "8000000"

    async with mirroring(link) as running:
        await produce(east, topic, some(5))
        await same_logs(east, west, topic)
        assert await is_at("7000000")
        await east.alter_configs({topic: {"retention.ms": "8000000"}})
        await eventually(lambda: is_at("8000000"), "the mirror has the new value", 60)
        await eventually(noted, "the link has noted that it set it", 60)
        assert await running.stop() == 0
    default = await _value(west, (await _another(west)), "retention.ms")
    await east.alter_configs({topic: {"retention.ms": None}})
    code, said, _ = await isthmus(links, link, "drift", "--json")
    rows = {row["key"]: row["action"] for row in json.loads(said)["drift"] if row["topic"] == topic}
    assert (code, rows) == (3, {"isthmus.mirror.source": "leave", "retention.ms": "take back"})
    async with mirroring(link) as running:
        await eventually(lambda: is_at(default), "what the link had set is taken back", 60)
        assert await _value(west, topic, "isthmus.mirror.source")
        assert await running.stop() == 0


async def _another(client):
    name = fresh("another")
    await create(client, name)
    return name


async def test_a_gap_that_is_acknowledged_lets_the_link_end_well(pair, clients, isthmus):
    east, west = clients
    topic, link = await mirrored(pair, clients, "known-gap", 10)
    await produce(east, topic, some(10))
    await produce(east, topic, some(10))
    await east.delete_records({TopicPartition(topic, 0): 20})
    async with mirroring(link) as running:
        await same_logs(east, west, topic)

        async def open_gap(running=running):
            return bool(running.to_json()["differences"])

        await eventually(open_gap, "the gap is known", 60)
        assert await running.stop() == 3
    words = ("acknowledge-gap", "--topic", topic, "--why", "INC-42", "--json")
    code, said, _ = await isthmus(mirrors, link, *words)
    shown = json.loads(said)["acknowledged"]
    assert (code, [(row["start"], row["end"]) for row in shown]) == (0, [(10, 20)])
    async with mirroring(link) as running:
        await same_logs(east, west, topic)

        async def nothing_open():
            found = running.to_json()
            part = found["partitions"].get(f"{topic}-0", {})
            return bool(part.get("gaps")) and found["differences"] == []  # it stays on record

        await eventually(nothing_open, "the gap is acknowledged", 60)
        assert await running.stop() == 0


async def test_with_on_gap_stop_a_mirror_keeps_what_it_has_until_its_gap_is_acknowledged(
    pair, clients, isthmus
):
    east, west = clients
    topic = fresh("held")
    await create(east, topic)
    await produce(east, topic, some(10))
    link = mirror_link(pair.east, pair.west, topic, on_gap="stop")
    await mirrored_once(east, west, link, topic)
    for _ in range(2):
        await produce(east, topic, some(10))
    await east.delete_records({TopicPartition(topic, 0): 20})
    kept, words = await log_bytes(west, topic), ("acknowledge-gap", "--topic", topic, "--why", "INC-42")
    async with mirroring(link) as running:

        async def held(running=running):
            return running.to_json().get("partitions", {}).get(f"{topic}-0", {}).get("state") == "held"

        await eventually(held, "the mirror waits before its gap", 60)
        assert await running.stop() == 3
    async with mirroring(link) as running:  # after a restart too
        await eventually(lambda: held(running), "the mirror waits before its gap", 60)
        assert len(running.to_json()["differences"]) == 1  # and it is the same gap
        assert await log_bytes(west, topic) == kept
        code, said, _ = await isthmus(links, link, "status", "--topic", topic)
        assert (code, "drops its 10 records before that gap" in said) == (3, True)
        code, said, _ = await isthmus(mirrors, link, *words, "--dry-run")
        assert (code, "drops the 10 records that it has before it" in said) == (0, True)
        await asyncio.sleep(3)  # longer than it takes to hear of an acknowledgement
        assert await held(running)
        code, _, error = await isthmus(mirrors, link, "promote", "--topic", topic, "--yes", "--no-fence")
        assert (code, "acknowledge-gap" in error) == (1, True)
        code, said, _ = await isthmus(mirrors, link, *words, "--json")
        assert (code, [row["drops"] for row in json.loads(said)["acknowledged"]]) == (0, [10])
        await same_logs(east, west, topic)
        assert await running.stop() == 0


async def test_every_gap_stays_until_somebody_acknowledges_it(pair, clients, isthmus):
    """However many there are, after a restart, and when the target has forgotten committed offsets."""
    east, west = clients
    topic, link = await mirrored(pair, clients, "gaps", 10)
    part = MirrorPartition(TopicPartition(topic, 0), await _value(west, topic, MIRROR_SOURCE))
    record = OnRecord(west, link)
    for start in range(0, 240, 2):  # found one by one, as by a link that is behind again and again
        await record.note(part, Kind.GAP, start, start + 1, "retention passed at the source")
    await record.note(part, Kind.GAP, 0, 1, "retention passed at the source")  # found again: the same
    await west.delete_groups([record_group(link.name)])
    await produce(east, topic, some(10))
    await produce(east, topic, some(10))
    await east.delete_records({TopicPartition(topic, 0): 20})
    for _ in range(2):
        async with mirroring(link) as running:
            await same_logs(east, west, topic)
            assert await running.stop() == 3
            assert len(_of(running.to_json()["differences"], topic)) == 121
    code, said, _ = await isthmus(mirrors, link, "status", "--json")
    shown = json.loads(said)["differences"]
    assert (code, len(shown)) == (3, 121)
    assert shown[5] == {
        "topic": topic, "partition": 0, "kind": "gap", "start": 10, "end": 11,
        "reason": "retention passed at the source",
    }  # fmt: skip
    code, said, _ = await isthmus(mirrors, link, "failover", "--dry-run", "--json")
    assert (code, len(json.loads(said)["differences"])) == (0, 121)
    assert len((await read_lacks(west, link.name))[TopicPartition(topic, 0)].gaps) == 121  # for the audit
    words = ("acknowledge-gap", "--topic", topic, "--why", "INC-43", "--json")
    code, said, _ = await isthmus(mirrors, link, *words)
    assert (code, len(json.loads(said)["acknowledged"])) == (0, 121)
    async with mirroring(link) as running:

        async def all_are_shown():
            return len(running.to_json().get("partitions", {}).get(f"{topic}-0", {}).get("gaps", ())) == 121

        await eventually(all_are_shown, "acknowledged gaps stay on record", 60)
        assert await running.stop() == 0
    code, said, _ = await isthmus(mirrors, link, "status", "--json")
    assert (code, json.loads(said)["differences"]) == (0, [])


async def test_gaps_that_an_earlier_version_kept_are_taken_over(pair, clients, isthmus):
    east, west = clients
    topic, link = await mirrored(pair, clients, "older", 10)
    tp = TopicPartition(topic, 0)
    about = {"source_end": 10, "seen_ms": 1, "level_ms": 1, "gaps": [[2, 4, "known"], [5, 6, "open"]]}
    await west.commit(record_group(link.name), {tp: Committed(10, -1, json.dumps(about))})
    store = ProgressStore(west, link.progress_topic)
    await store.save_acknowledged({Difference(tp, Kind.GAP, 2, 4, "known", 0): Acknowledgement("me", "x", 1)})
    code, said, _ = await isthmus(
        mirrors, link, "acknowledge-gap", "--all", "--why", "x", "--dry-run", "--json"
    )
    assert (code, [row["reason"] for row in json.loads(said)["acknowledged"]]) == (0, ["open"])
    for _ in range(2):
        async with mirroring(link) as running:
            await same_logs(east, west, topic)

            async def heard(running=running):
                return running.to_json().get("partitions", {}).get(str(tp), {}).get("source_end") == 10

            await eventually(heard, "the source was heard", 60)
            assert await running.stop() == 3
            status = running.to_json()
            assert _of(status["differences"], topic) == [f"{tp}: offsets 5 to 6: open"]
            assert status["partitions"][str(tp)]["gaps"] == [(2, 4, "known"), (5, 6, "open")]
        (at,) = (await west.committed(record_group(link.name), [tp])).values()
        assert "gaps" not in json.loads(at.metadata)  # so they were read elsewhere the second time


def _of(differences, topic):
    return [text for text in differences if text.startswith(f"{topic}-")]


async def test_a_rate_limit_holds(pair, clients):
    east, west = clients
    topic = fresh("slow")
    await create(east, topic)
    for _ in range(8):
        await produce(east, topic, [Record(0, 1, b"k", bytes(100_000)) for _ in range(2)])
    link = mirror_link(
        pair.east,
        pair.west,
        topic,
        rate_limit=800_000,
        flow={"fetch_max_bytes": 300_000, "fetch_partition_max_bytes": 300_000},
    )
    begun = time.monotonic()
    await mirrored_once(east, west, link, topic)
    assert time.monotonic() - begun > 1.2  # 1.6 MB, of which a quarter of a second's worth is free


async def test_commands_about_links_know_mirrors_or_say_which_command_does(pair, clients, isthmus):
    east, west = clients
    topic = fresh("asked")
    await create(east, topic)
    await produce(east, topic, some(3))
    link = mirror_link(pair.east, pair.west, topic)
    code, said, _ = await isthmus(links, link, "check", "--json")
    assert code == 0, said
    await mirrored_once(east, west, link, topic)
    code, said, _ = await isthmus(links, link, "check", "--json")
    ((findings),) = [one["findings"] for one in json.loads(said)]
    assert (code, [one for one in findings if one["check"] == "names"]) == (0, [])
    code, said, _ = await isthmus(links, link, "status", "--topic", topic)
    assert (code, topic in said) == (0, True)
    for command in (("translate", "--group", topic), ("pause",)):
        code, _, error = await isthmus(links, link, *command)
        assert code == 2
        assert "isthmus mirrors status" in error
