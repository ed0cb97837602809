"""`links fail-groups-back`: consumers go on at the source behind what they have read at the target."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from isthmus.commands.links import app
from protocol.client import LATEST, Committed
from protocol.types import TopicPartition
from replicator.failing_back import FailBack
from replicator.filters import NameFilter
from tests.cluster.link_commands import declared
from tests.cluster.links import (
    BOTH_SOURCES,
    content,
    copied_to,
    create,
    eventually,
    fresh,
    produce,
    running,
    some,
)
from tests.cluster.mirrors import read
from tests.support.group_member import GroupMember

pytestmark = BOTH_SOURCES

SETTINGS = {"naming": "identity", "origin_headers": True, "heartbeats_replication": False}


@pytest.fixture
def link_command(tmp_path):
    """The command: exit code, and what it printed, or said where that is nothing."""

    async def run(link, *words):
        file = declared(link, tmp_path, "heartbeats_replication: false")
        command = ["fail-groups-back", link.name, *words, "-f", str(file), "--json"]
        done = await asyncio.to_thread(CliRunner().invoke, app, command, catch_exceptions=False)
        return done.exit_code, json.loads(done.stdout) if done.stdout else done.stderr

    return run


async def fail_back(east, west, link, group, *, dry_run=False):
    """(old, new, exact, why not) by partition."""
    failing = FailBack(east, west, link)
    rows, refused = await failing.rows(NameFilter([group], []))
    if not dry_run:
        await failing.write(rows)
    assert refused == {}
    return {row.partition: (row.old, row.new, row.exact, row.why_not) for row in rows}


async def at(client, group, topic, partition=0):
    found = (await client.committed(group)).get(TopicPartition(topic, partition))
    return None if found is None else found.offset


def values(found):
    return [value for _, value in found]


async def test_a_consumer_goes_on_behind_what_it_has_read_at_the_target(pair, clients, link_command):
    """Its mirror has records of somebody else before, between and behind those of the link."""
    east, west = clients
    topic, group = fresh("home"), fresh("home-group")
    link = pair.link(topic)
    mirror = link.names().at_target(topic)
    await create(east, topic)
    await create(west, mirror)
    await produce(west, mirror, some(3, "other"))
    await produce(east, topic, some(10, "a"))
    await east.commit(group, {TopicPartition(topic, 0): Committed(4)})
    async with running(link):
        await copied_to(west, link, topic, 10)
        await produce(west, mirror, some(2, "between"))
        await produce(east, topic, some(10, "b"))
        await copied_to(west, link, topic, 20)
    await produce(west, mirror, some(4, "behind"))
    await west.commit(group, {TopicPartition(mirror, 0): Committed(3 + 4)})
    assert values(read(pair.west, mirror, 12, group=group))[-1] == "b-3"
    assert await fail_back(east, west, link, group, dry_run=True) == {0: (4, 14, True, "")}
    assert await at(east, group, topic) == 4
    assert await fail_back(east, west, link, group) == {0: (4, 14, True, "")}
    assert values(read(pair.east, topic, 6, group=group)) == [f"b-{n}" for n in range(4, 10)]
    refusal = (await fail_back(east, west, link, group))[0]
    assert refusal[:2] == (20, 14)
    assert "not taken back" in refusal[3]
    read(pair.west, mirror, 10, group=group)  # to the end, and what is not the link's
    assert await fail_back(east, west, link, group) == {0: (20, 20, True, "")}
    code, shown = await link_command(link, "--group", group)
    assert code == 0
    assert [(row["group"], row["old"], row["new"], row["set"]) for row in shown["positions"]] == [
        (group, 20, 20, False)
    ]
    assert shown["groups_without_position"] == []
    assert (await link_command(link, "--group", "nobody.*"))[0] == 2
    # One that has read at the source only is told of, and no difference.
    await east.commit(f"{group}-2", {TopicPartition(topic, 0): Committed(4)})
    code, shown = await link_command(link, "--group", f"{group}.*")
    assert (code, shown["groups_without_position"]) == (0, [f"{group}-2"])
    assert [row["group"] for row in shown["positions"]] == [group]
    assert await at(east, f"{group}-2", topic) == 4
    code, said = await link_command(link, "--group", f"{group}-2")
    assert code == 1
    assert f"without a position at {link.target.alias} in topics of {link.name}: {group}-2" in said


async def test_what_a_killed_link_left_behind_counts(pair, clients):
    east, west = clients
    topic, group = fresh("killed"), fresh("killed-group")
    link = pair.link(topic, progress_interval_s=60)
    mirror = link.names().at_target(topic)
    await create(east, topic)
    await produce(east, topic, some(6))
    async with running(link) as run:

        async def copied():
            return len(await content(west, mirror)) == 6

        await eventually(copied, "all is at the target")
        await west.commit(group, {TopicPartition(mirror, 0): Committed(5)})
        # as a killed link leaves it: nothing is stored of what was copied
        assert await fail_back(east, west, link, group) == {0: (None, 5, True, "")}
        await run.stop()


async def test_beside_a_link_back_with_the_same_names_nothing_is_lost_or_read_again(pair, clients):
    east, west = clients
    topic, group = fresh("circle"), fresh("circle-group")
    there = pair.link(topic, **SETTINGS)
    back = pair.link(topic, back=True, number=int(there.source.alias.removeprefix("east")), **SETTINGS)
    assert (back.source.alias, back.target.alias) == (there.target.alias, there.source.alias)
    await create(east, topic)
    await produce(east, topic, some(8, "east"))
    await east.commit(group, {TopicPartition(topic, 0): Committed(2)})
    async with running(there):
        await copied_to(west, there, topic, 8)
    # failover: producers and consumers are at the target
    await produce(west, topic, some(6, "west"))
    await west.commit(group, {TopicPartition(topic, 0): Committed(2)})
    assert values(read(pair.west, topic, 10, group=group))[-1] == "west-3"
    async with running(back):
        await copied_to(east, back, topic, 14)
    end = (await east.list_offsets({TopicPartition(topic, 0): LATEST}))[TopicPartition(topic, 0)].offset
    assert end == 14
    assert await fail_back(east, west, there, group) == {0: (2, 12, True, "")}
    assert values(read(pair.east, topic, 2, group=group)) == ["west-4", "west-5"]
    await produce(west, topic, some(1, "late"))
    read(pair.west, topic, 3, group=group)
    (row,) = (await fail_back(east, west, there, group)).values()
    assert "has not copied yet" in row[3]


async def test_records_that_never_reached_the_target_are_not_passed_over(pair, clients):
    """The source had them when it was lost; those of the target that came behind them are read again."""
    east, west = clients
    topic, group = fresh("unseen"), fresh("unseen-group")
    there = pair.link(topic, **SETTINGS)
    back = pair.link(topic, back=True, number=int(there.source.alias.removeprefix("east")), **SETTINGS)
    await create(east, topic)
    await produce(east, topic, some(3, "east"))
    async with running(there):
        await copied_to(west, there, topic, 3)
    await produce(east, topic, some(2, "unseen"))
    await produce(west, topic, some(4, "west"))
    async with running(back):
        await copied_to(east, back, topic, 7)
    await west.commit(group, {TopicPartition(topic, 0): Committed(7)})
    (row,) = (await fail_back(east, west, there, group)).values()
    assert row == (None, 3, False, "")


@pytest.mark.parametrize("side", ["east", "west"])
async def test_a_group_that_somebody_reads_with_is_left_alone(pair, clients, members, side):
    east, west = clients
    topic, group = fresh("live"), fresh("live-group")
    link = pair.link(topic)
    mirror = link.names().at_target(topic)
    await create(east, topic)
    await produce(east, topic, some(5))
    async with running(link):
        await copied_to(west, link, topic, 5)
    await west.commit(group, {TopicPartition(mirror, 0): Committed(3)})
    bootstrap, name = (pair.east, topic) if side == "east" else (pair.west, mirror)
    members.append(GroupMember(bootstrap, group, name, enable_auto_commit=False))
    members[0].start()
    client = east if side == "east" else west

    async def joined():
        return (await client.describe_groups([group]))[group].state == "Stable"

    await eventually(joined, "the group has a member")
    (row,) = (await fail_back(east, west, link, group)).values()
    assert row[1:3] == (3, True)
    assert "is active at" in row[3]
    assert await at(east, group, topic) in (None, 0)
