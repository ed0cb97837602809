"""Ad-hoc copies between two clusters: what their end says is true, whatever happens to topics meanwhile."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from protocol.client import LATEST
from protocol.types import TopicPartition
from replicator import copy_watch
from replicator.connected import EXIT_DIFFERENCES
from replicator.copying import CopyError, CopyRequest, plan_copy, refuse_strange, run_copy
from replicator.renaming import Rename
from tests.cluster.links import content, create, eventually, fresh, produce, records, some
from tests.support.commands import begun, ended
from tests.support.without_spark import without_spark

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

BOUND_S = 60.0


async def run(*arguments):
    return await ended(await begun("copy", *arguments))


async def asked_of_links(*arguments):
    return await ended(await begun("links", *arguments))


def asked(pair, topic, *, same=False, **more):
    """A copy of topics that begin like `topic`, under a name of its own."""
    to = pair.east if same else pair.west
    return CopyRequest(pair.east, to, (f"{topic}.*",), name=topic, **more)


async def finished(plan):
    async with asyncio.timeout(BOUND_S):
        return await run_copy(plan, asyncio.Event(), until_now=True, show=lambda _: None)


@contextlib.asynccontextmanager
async def copying(request):
    """A copy without an end; gives how to stop it, for its result."""
    stop = asyncio.Event()
    task = asyncio.create_task(run_copy(await plan_copy(request), stop, until_now=False, show=lambda _: None))

    async def stopped():
        stop.set()
        async with asyncio.timeout(BOUND_S):
            return await task

    try:
        yield stopped
    finally:
        await stopped()


async def end_of(client, topic):
    spot = TopicPartition(topic, 0)
    return (await client.list_offsets({spot: LATEST}))[spot].offset


async def holds(client, topic, count):
    async def there():
        return len(await records(client, topic)) >= count

    await eventually(there, f"{count} records in {topic}", BOUND_S)


async def test_a_pattern_without_a_topic_is_a_slip_of_the_pen(pair, clients):
    east, west = clients
    topic = fresh("slip")
    await create(east, topic)
    await produce(east, topic, some(5))
    ends = ("--from", pair.east, "--to", pair.west, "--name", topic)
    code, out, err = await run(*ends, "--topics", f"{topic},{topic}s", "--until-now")
    assert (code, f"--topics {topic}s matches no topic" in err) == (2, True), (out, err)
    assert topic not in (await west.metadata(None)).topics
    code, _, err = await run(*ends, "--topics", f"{topic},{topic}s", "--dry-run")
    assert (code, f"--topics {topic}s matches no topic" in err) == (0, True), err  # it may be born later
    await create(east, f"{topic}.internal")
    refused = CopyRequest(pair.east, pair.west, (f"{topic}.internal",))
    with pytest.raises(CopyError, match=rf"that can be copied .{topic}.internal: internal topic"):
        await plan_copy(refused)


async def test_an_installation_without_spark_copies(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("light")
    await create(east, topic)
    await produce(east, topic, some(5))
    words = ("copy", "--from", pair.east, "--to", pair.west, "--topics", topic, "--until-now")
    code, _, err = await ended(await begun(*words, env=without_spark(tmp_path)))
    assert code == 0, err
    assert await content(west, topic) == await content(east, topic)


async def test_a_topic_made_again_is_named_where_the_copy_ends_with_3(pair, clients):
    east, _ = clients
    topic = fresh("again")
    await create(east, topic)
    await produce(east, topic, some(5))
    request = asked(pair, topic, until_now=True)
    assert (await finished(await plan_copy(request))).code == 0
    await east.delete_topics([topic])
    await create(east, topic)
    await produce(east, topic, some(3, "new"))
    with pytest.raises(CopyError, match="--append"):
        refuse_strange(await plan_copy(request))
    for _ in range(2):
        result = await finished(await plan_copy(request))
        assert (result.code, result.left) == (EXIT_DIFFERENCES, {})
        (gap,) = result.gaps[f"{topic}-0"]
        assert gap.startswith("gap 5..5 (source topic re-created")
    name = (await plan_copy(request)).settings.name
    words = ("--all", "--why", "INC-42", "--to", pair.west)
    code, _, err = await asked_of_links("acknowledge-gap", f"{name}x", *words)
    assert (code, "there is no progress of a copy" in err) == (2, True), err
    assert (
        f"isthmus-link.{name.replace('->', '-to-')}x.internal" not in (await clients[1].metadata(None)).topics
    )
    for options, exit_code in (("--dry-run",), EXIT_DIFFERENCES), ((), 0):
        code, out, err = await asked_of_links("acknowledge-gap", name, *words, *options)
        assert (code, f"gap {topic}-0 5..5" in out) == (0, True), (out, err)
        assert (await finished(await plan_copy(request))).code == exit_code


async def test_a_name_is_of_copies_from_one_cluster(pair, clients):
    """The other one's topic would be taken for the same, made again."""
    topic = fresh("named")
    for cluster in clients:
        await create(cluster, topic)
    rename = (Rename.parse(f"{topic}={topic}-2"),)
    here = CopyRequest(pair.east, pair.west, (topic,), name=topic, rename=rename, until_now=True)
    assert (await finished(await plan_copy(here))).code == 0
    with pytest.raises(CopyError, match="give this copy another --name"):
        await plan_copy(replace(here, source=pair.west, rename=(Rename.parse(f"{topic}={topic}-3"),)))


@pytest.mark.parametrize("again", [3, None])
async def test_a_copy_until_now_ends_without_a_topic_that_is_another_by_now(
    pair, clients, monkeypatch, again
):
    """Made again with fewer records than the copy waits for, or gone before it was looked for."""
    monkeypatch.setattr(copy_watch, "_GIVE_UP_TOPIC_S", 1.0)
    east, west = clients
    topic = fresh("other")
    for name in (topic, f"{topic}-stays"):
        await create(east, name)
        await produce(east, name, some(20))
    plan = await plan_copy(asked(pair, topic, until_now=True))
    await east.delete_topics([topic])
    if again is not None:
        await create(east, topic)
        await produce(east, topic, some(again, "new"))
    result = await finished(plan)
    assert (result.code, list(result.left)) == (EXIT_DIFFERENCES, [f"{topic}-0"])
    assert ("created again" if again else "not at the source") in result.left[f"{topic}-0"]
    assert await content(west, f"{topic}-stays") == await content(east, f"{topic}-stays")


async def test_a_topic_that_is_deleted_when_it_is_copied_is_copied(pair, clients):
    east, _ = clients
    topic = fresh("late")
    await create(east, topic)
    await produce(east, topic, some(20))
    plan = await plan_copy(asked(pair, topic))
    async with copying(asked(pair, topic)) as stopped:
        await holds(clients[1], topic, 20)
        await east.delete_topics([topic])
        await asyncio.sleep(0)
        result = await stopped()
    assert plan.ends == {TopicPartition(topic, 0): 20}
    assert (result.code, result.left) == (0, {})


async def test_what_an_endless_copy_could_not_copy_is_named_when_it_is_stopped(pair, clients):
    """A record that the target refuses, and a topic that it cannot make."""
    east, west = clients
    topic = fresh("endless")
    small, none = f"{topic}-small", f"{topic}-none"
    await create(east, small)
    await create(west, small, max_message_bytes="200")
    await produce(east, small, some(1, "x" * 500))
    await create(east, topic)
    await produce(east, topic, some(5))
    request = asked(pair, topic, replication_factor=1)
    async with copying(request) as stopped:
        await holds(west, topic, 5)
        await asyncio.sleep(2)
        result = await stopped()
    assert (result.code, list(result.left)) == (EXIT_DIFFERENCES, [f"{small}-0"])
    assert "MESSAGE_TOO_LARGE" in result.left[f"{small}-0"]
    await create(east, none)
    async with copying(asked(pair, none, replication_factor=3)) as stopped:
        await asyncio.sleep(4)
        result = await stopped()
    assert (result.code, list(result.left)) == (EXIT_DIFFERENCES, [none])


async def test_a_topic_that_appears_is_not_copied_onto_itself(pair, clients):
    east, _ = clients
    topic = fresh("circle")
    await create(east, topic)
    await produce(east, topic, some(5))
    rename = (Rename.parse(f"{topic}=copy-of-{topic}"),)
    async with copying(asked(pair, topic, same=True, rename=rename)) as stopped:
        await holds(east, f"copy-of-{topic}", 5)
        await create(east, f"{topic}-2")
        await produce(east, f"{topic}-2", some(5))
        await produce(east, topic, some(5, "later"))
        await holds(east, f"copy-of-{topic}", 10)
        await asyncio.sleep(2)  # both are looked for each second
        result = await stopped()
    assert await end_of(east, f"{topic}-2") == 5
    assert (result.code, list(result.left)) == (EXIT_DIFFERENCES, [f"{topic}-2"])
    assert "needs another name" in result.left[f"{topic}-2"]


async def test_records_do_not_go_round_between_two_copies(pair, clients):
    """Both sides are empty when they begin; --append and --until-now bring records back once."""
    _, west = clients
    topic = fresh("round")
    for cluster in clients:
        await create(cluster, topic)
    assert (await finished(await plan_copy(asked(pair, topic, until_now=True)))).code == 0
    back = CopyRequest(pair.west, pair.east, (topic,), name=topic)
    for request in (back, replace(back, append=True), replace(back, until_now=True)):
        with pytest.raises(CopyError, match=rf"{topic} \(isthmus-link.copy-{topic}-to-"):
            refuse_strange(await plan_copy(request))
    refuse_strange(await plan_copy(replace(back, append=True, until_now=True)))
    await west.delete_topics([topic])  # another one is filled from nowhere
    await create(west, topic)
    refuse_strange(await plan_copy(back))


@pytest.mark.parametrize("append", [False, True])
async def test_topics_that_appear_do_not_come_into_those_of_others(pair, clients, append):
    """Into the copy of another topic never; behind records that no copy has progress of with --append."""
    east, west = clients
    topic = fresh("born")
    for name in (f"{topic}-b", f"{topic}-b.other"):
        await create(east, name)
        await produce(east, name, some(5, name))
    await create(west, f"{topic}-taken")
    await produce(west, f"{topic}-taken", some(3, "there"))
    rename = (Rename.parse(rf"({topic}-)[ab]=\1one"),)
    async with copying(asked(pair, topic, rename=rename, append=append)) as stopped:
        await holds(west, f"{topic}-one", 5)
        for name in (f"{topic}-a", f"{topic}-taken", f"{topic}-new"):
            await create(east, name)
            await produce(east, name, some(4, name))
        await holds(west, f"{topic}-new", 4)
        await holds(west, f"{topic}-taken", 7 if append else 3)
        result = await stopped()
    assert len(await records(west, f"{topic}-one")) == 5
    assert len(await records(west, f"{topic}-taken")) == (7 if append else 3)
    expected = [f"{topic}-a"] if append else [f"{topic}-a", f"{topic}-taken"]
    assert (result.code, sorted(result.left)) == (EXIT_DIFFERENCES, expected)


async def test_what_was_born_while_a_copy_from_latest_rested_is_copied_from_its_start(pair, clients):
    east, west = clients
    topic = fresh("latest")
    await create(east, topic)
    await produce(east, topic, some(5, "before"))
    request = asked(pair, topic, start="latest", until_now=True)
    assert (await finished(await plan_copy(request))).code == 0
    await east.create_partitions({topic: 2})
    await produce(east, topic, some(3, "grown"), 1)
    await create(east, f"{topic}-new")
    await produce(east, f"{topic}-new", some(4, "new"))
    await create(east, f"old-{topic}")
    await produce(east, f"old-{topic}", some(2, "old"))
    for _ in range(2):
        more = replace(request, topics=(*request.topics, f"old-{topic}"))
        assert (await finished(await plan_copy(more))).code == 0
        found = [len(await records(west, *at)) for at in ((topic, 0), (topic, 1), (f"{topic}-new",))]
        assert (found, await records(west, f"old-{topic}")) == ([0, 3, 4], [])
