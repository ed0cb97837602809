"""Topics of a link that have no mirror yet when roles are to change."""

import asyncio
import json

import pytest

from replicator.mirrors.assessing import SwitchRefused, find_mirrors
from replicator.mirrors.left_behind import left_behind, refuse_to_leave_behind
from replicator.mirrors.restoring import truncate_and_restore
from replicator.mirrors.switching import failover, promote
from tests.cluster.links import create, fresh, produce, some
from tests.cluster.mirrors import mirror_link, mirroring, quiet, same_logs
from tests.support.commands import begun, ended

pytestmark = pytest.mark.cluster

TOPOLOGY = """
version: 1
name: left-behind
data_directory: {folder}
datacenters: {{east: , west: }}
clusters:
  east: {{datacenter: east, bootstrap_servers: "{east}"}}
  west: {{datacenter: west, bootstrap_servers: "{west}"}}
links:
  east->west: {{offsets: identical, naming: identity, topics: ["{topics}"], groups: ["{topics}"]}}
"""


async def test_a_promotion_leaves_no_topic_behind_that_has_no_mirror_yet(pair, clients, tmp_path):
    """Its clients would go to a side that has never heard of it, and make an empty one of that name."""
    east, west = clients
    name = fresh("left")
    mirrored, late, other = f"{name}-mirrored", f"{name}-late", f"{name}-other"
    link = mirror_link(pair.east, pair.west, f"{name}.*")
    await create(east, mirrored)
    await produce(east, mirrored, some(3))
    async with mirroring(link):
        await same_logs(east, west, mirrored)
    assert (await refuse_to_leave_behind(east, west, link)).texts == {}
    await create(east, late)
    await produce(east, late, some(2))
    for client in (east, west):
        await create(client, other)
    found = await left_behind(east, west, link)
    assert found.missing == (late,)
    assert found.apart == {other: "writable at the target: promoted, or not made by this link"}

    file = tmp_path / "topology.yaml"
    file.write_text(TOPOLOGY.format(folder=tmp_path, east=pair.east, west=pair.west, topics=f"{name}.*"))

    async def mirrors(verb, *more):
        return await ended(await begun("mirrors", verb, "east->west", "-f", file, *more))

    (code, _, refusal), (failed, risks, _) = await asyncio.gather(
        mirrors("promote", "--yes"), mirrors("failover", "--dry-run", "--json")
    )
    assert code == 1, refusal
    assert f"west has no mirror of {late}, and what east holds of that would be left behind" in refusal
    assert failed == 3
    assert json.loads(risks)["not_mirrored"] == {late: "there is no mirror of it yet", **found.apart}

    async with mirroring(link):
        await same_logs(east, west, late)
    assert (await refuse_to_leave_behind(east, west, link)).apart == found.apart
    await promote(east, west, link, await find_mirrors(west, link), quiet, timeout_s=60)
    # What has been promoted is nobody's loss: its source refuses writers.
    assert (await left_behind(east, west, link)).texts == found.apart


async def test_a_topic_that_the_new_side_made_alone_is_not_left_there(pair, clients, tmp_path):
    east, west = clients
    name = fresh("since")
    link = mirror_link(pair.east, pair.west, f"{name}.*")
    back = mirror_link(pair.west, pair.east, f"{name}.*", back=True)
    await create(east, f"{name}-old")
    async with mirroring(link):
        await same_logs(east, west, f"{name}-old")
    await failover(None, west, link, await find_mirrors(west, link), quiet)
    await create(west, f"{name}-new")

    async def home():
        return await truncate_and_restore(east, west, link, back, (), tmp_path, quiet, timeout_s=60)

    with pytest.raises(SwitchRefused, match=f"east has no mirror of {name}-new"):
        await home()
    async with mirroring(back):
        await same_logs(west, east, f"{name}-new")
    done = await home()
    assert done.switched.topics == [f"{name}-new", f"{name}-old"]


async def test_heartbeats_of_the_source_are_no_topic_that_is_left_behind(clients, pair):
    """Each cluster has its own, beside topics of people that are called so."""
    east, west = clients
    name = fresh("beating")
    link = mirror_link(pair.east, pair.west, f"{name}.*")
    await create(east, f"{name}.heartbeats")
    await produce(east, f"{name}.heartbeats", some(3))
    if "heartbeats" not in (await east.metadata(None)).topics:
        await create(east, "heartbeats")
    async with mirroring(link):
        await same_logs(east, west, f"{name}.heartbeats")
        assert (await refuse_to_leave_behind(east, west, link)).texts == {}
        await promote(east, west, link, await find_mirrors(west, link), quiet, timeout_s=60)
