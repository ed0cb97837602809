"""`links translate` by time: the first record since then on one side, and its place on the other."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from isthmus.commands.links import app
from protocol.client import LATEST, Committed, Isolation
from protocol.records import Record
from protocol.types import TopicPartition
from replicator import by_time
from replicator.settings import LinkSettings
from tests.cluster.links import Pair, copied_to, create, eventually, fresh, produce, running, two_brokers
from tests.support.apache_kafka import apache_kafka
from tests.support.slow import slow

T0 = 1_700_000_000_000
"""Years before the commit of any transaction here."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("isthmus", marks=pytest.mark.cluster),
        pytest.param("apache", marks=[pytest.mark.interop, slow("starts two of Apache Kafka")]),
    ],
)
def pair(request, zookeeper_server, tmp_path_factory):
    """Two clusters of ours, or of Apache Kafka's: look-ups by time at both sides."""
    if request.param == "apache":
        with apache_kafka("time-east") as east, apache_kafka("time-west") as west:
            yield Pair("apache", east, west)
        return
    with two_brokers(zookeeper_server, tmp_path_factory.mktemp("pair")) as ours:
        yield ours


@pytest.fixture
def translate(tmp_path):
    """Runs the command: exit code, rows or what it said."""

    async def run(link: LinkSettings, *words):
        east, west = link.source, link.target
        file = tmp_path / "mm2.properties"
        file.write_text(
            f"clusters = {east.alias}, {west.alias}\n{east.alias}.bootstrap.servers = {east.bootstrap}\n"
            f"{west.alias}.bootstrap.servers = {west.bootstrap}\n{link.name}.enabled = true\n"
        )
        command = ["translate", link.name, "-f", str(file), *words]
        done = await asyncio.to_thread(CliRunner().invoke, app, command, catch_exceptions=False)
        rows = json.loads(done.stdout)["positions"] if done.stdout.startswith("{") else done.stdout
        return done.exit_code, rows, done.stderr

    return run


def at(*minutes: int) -> list[Record]:
    return [Record(0, T0 + 60_000 * minute, b"k", b"%d" % minute) for minute in minutes]


def when(minute: float) -> str:
    return str(T0 + round(60_000 * minute))


def brief(rows):
    return [(row["partition"], row["from"], row["offset"], row["exact"], row["note"]) for row in rows]


async def test_a_time_has_a_place_on_both_sides(pair, clients, translate):
    east, west = clients
    topic = fresh("timed")
    link = pair.link(topic, heartbeats_replication=False)
    mirror = f"{link.source.alias}.{topic}"
    for client, name in ((east, topic), (west, mirror)):
        await create(client, name, 2)
    await produce(west, mirror, at(0, 1, 2))  # somebody else's: offsets differ
    await produce(east, topic, at(0, 1, 2, 3, 4))
    await produce(east, topic, at(10, 20), 1)
    async with running(link):
        await copied_to(west, link, topic, 5)
        await copied_to(west, link, topic, 2, 1)
    there = await translate(link, "--topic", topic, "--time", when(2.5), "--json")
    assert there[0] == 0
    assert brief(there[1]) == [(0, 3, 6, True, None), (1, 0, 0, True, None)]
    assert [row["timestamp"] for row in there[1]] == [T0 + 180_000, T0 + 600_000]
    assert {row["topic"] for row in there[1]} == {mirror}
    back = await translate(link, "-t", mirror, "-p", "1", "--time", when(11), "--back", "--json")
    assert (back[0], brief(back[1]), back[1][0]["topic"]) == (0, [(1, 1, 1, True, None)], topic)
    late = await translate(link, "--topic", topic, "--time", when(5), "--json")
    assert (late[0], brief(late[1])) == (0, [(0, 5, 8, True, by_time.NONE_YET), (1, 0, 0, True, None)])
    await produce(east, topic, at(5, 6))  # is not copied: the link does not run
    held = await translate(link, "--topic", topic, "-p", "0", "--time", when(6), "--json")
    assert (held[0], brief(held[1])) == (0, [(0, 6, 8, False, None)])
    code, text, _ = await translate(link, "--topic", topic, "--time", "2023-11-14T22:16:20Z")
    assert (code, "2023-11-14T22:17:20.000Z" in text) == (0, False)
    assert (code, "2023-11-14T22:16:20.000Z" in text) == (0, True)


async def test_what_has_no_place_is_said(pair, clients, translate):
    east, _ = clients
    topic, other = fresh("timed"), fresh("other")
    link = pair.link(topic, heartbeats_replication=False)
    await create(east, other)
    await produce(east, other, at(0))
    code, rows, _ = await translate(link, "--topic", other, "--time", when(0), "--json")
    nothing = "this link has copied nothing of the partition"
    assert (code, rows[0]["offset"], rows[0]["why_not"]) == (3, None, nothing)
    for words, said in (
        (("--topic", "none"), f"there is no topic 'none' at {link.source.alias}"),
        (("--topic", other, "--partition", "7"), f"topic {other} at {link.source.alias} has no partition 7"),
    ):
        assert await translate(link, *words, "--time", when(0)) == (2, "", f"isthmus: {said}\n")


async def test_a_topic_that_was_created_again_is_not_translated_by_its_old_ledger(pair, clients, translate):
    east, west = clients
    topic = fresh("again")
    link = pair.link(topic, heartbeats_replication=False)
    await create(east, topic)
    await produce(east, topic, at(0, 1, 2))
    async with running(link):
        await copied_to(west, link, topic, 3)
    await east.delete_topics([topic])

    async def made() -> bool:
        try:
            await create(east, topic)
        except Exception:  # being deleted still
            return False
        return True

    await eventually(made, "the topic is there again")
    await produce(east, topic, at(1, 2))
    code, rows, _ = await translate(link, "--topic", topic, "--time", when(0), "--json")
    assert (code, rows[0]["offset"]) == (3, None)
    assert "created again" in rows[0]["why_not"]


async def test_markers_of_a_copy_exactly_once_are_no_records_of_their_time(pair, clients, translate):
    """They carry the time of the copying, years behind the records; ListOffsets names the first of them."""
    east, west = clients
    topic = fresh("once")
    link = pair.link(topic, heartbeats_replication=False, exactly_once=True)
    await create(east, topic)
    async with running(link):
        for minutes in ((0, 1), (2, 3), (4, 5)):
            await produce(east, topic, at(*minutes))
            await copied_to(west, link, topic, minutes[1] + 1)
    mirror = f"{link.source.alias}.{topic}"
    code, rows, _ = await translate(link, "--topic", mirror, "--time", when(4.5), "--back", "--json")
    assert (code, rows[0]["offset"], rows[0]["timestamp"]) == (0, 5, T0 + 300_000)
    assert rows[0]["exact"]
    code, rows, _ = await translate(link, "--topic", mirror, "--time", when(9), "--back", "--json")
    assert (code, rows[0]["offset"], rows[0]["exact"], rows[0]["note"]) == (0, 6, True, by_time.NONE_YET)


async def test_a_position_behind_the_last_marker_of_a_copy_exactly_once_goes_back_exactly(
    pair, clients, translate
):
    """Whoever has read the target to its end stands behind the marker of the last transaction."""
    east, west = clients
    topic, group = fresh("behind"), fresh("group")
    link = pair.link(topic, heartbeats_replication=False, exactly_once=True)
    mirror = TopicPartition(f"{link.source.alias}.{topic}", 0)
    await create(east, topic)
    async with running(link):
        await produce(east, topic, at(0, 1))
        await copied_to(west, link, topic, 2)
    await ended_at(west, mirror, 3)
    await west.commit(group, {mirror: Committed(3)})
    asked = ("--back", "--json", "--topic", mirror.topic, "--offset")
    for words in (("--back", "--json", "--group", group), (*asked, "2"), (*asked, "3")):
        code, rows, _ = await translate(link, *words)
        assert (code, [(row["offset"], row["exact"]) for row in rows]) == (0, [(2, True)]), words
    code, rows, _ = await translate(link, *asked, "4")  # nobody has read what is not there yet
    assert (rows[0]["offset"], rows[0]["exact"], rows[0]["from"]) == (2, False, 4)
    await produce(west, mirror.topic, at(7))  # of somebody else
    await ended_at(west, mirror, 4)
    code, rows, _ = await translate(link, *asked, "4")
    assert (rows[0]["offset"], rows[0]["exact"]) == (2, False)
    code, rows, _ = await translate(link, *asked, "3")
    assert (rows[0]["offset"], rows[0]["exact"], rows[0]["from"]) == (2, True, 3)


async def ended_at(client, tp: TopicPartition, offset: int) -> None:
    async def there() -> bool:
        listed = await client.list_offsets({tp: LATEST}, isolation=Isolation.READ_COMMITTED)
        return listed[tp].offset == offset

    await eventually(there, f"{tp} ends at {offset}")


async def test_a_look_that_would_read_too_much_says_where_it_began(pair, clients):
    east, west = clients
    topic = fresh("much")
    link = pair.link(topic, heartbeats_replication=False, exactly_once=True)
    await create(east, topic)
    async with running(link):
        for minute in range(4):
            await produce(east, topic, [Record(0, T0 + 60_000 * minute, b"k", bytes(100_000))])
            await copied_to(west, link, topic, minute + 1)
    mirror, none = TopicPartition(f"{link.source.alias}.{topic}", 0), TopicPartition("none", 0)
    found, why = await by_time.first_since(west, [mirror, none], T0 + 180_000)
    assert found == {mirror: by_time.Place(6, T0 + 180_000)}
    assert list(why) == [none]
    found, _ = await by_time.first_since(west, [mirror], T0 + 180_000, read_at_most=1)
    place = found[mirror]
    assert (place.offset, place.timestamp, place.exact) == (1, None, False)
    assert "were not looked at" in place.note


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--group", "g", "--time", "1h"), "--group and --time exclude each other"),
        (("-t", "t", "--offset", "1", "--time", "1h"), "--offset and --time exclude each other"),
        (("--group", "g", "-t", "t", "-o", "1", "--time", "1h"), "--group and --offset and --time exclude"),
        (("--time", "1h"), "say either --group G"),
        (("-t", "t"), "say either --group G"),
        (("--group", "g", "--topic", "t"), "--group means all that it has committed"),
        (("-t", "t", "--time", "soon"), "--time 'soon' is not understood"),
    ],
)
@pytest.mark.cluster
async def test_one_thing_is_asked_for_at_a_time(words, said, translate):
    link = LinkSettings.model_validate(
        {"source": {"alias": "a", "bootstrap": "x:1"}, "target": {"alias": "b", "bootstrap": "y:1"}}
    )
    code, _, error = await translate(link, *words)
    assert (code, said in error) == (2, True), error
