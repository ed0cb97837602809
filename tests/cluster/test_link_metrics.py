"""What the gauges of a running link say while something holds it up."""

import asyncio

import pytest

from protocol.client import ClientError
from replicator.opening import Opener
from replicator.progress import ProgressStore
from tests.cluster.links import copied_to, create, eventually, fresh, produce, running, some

pytestmark = pytest.mark.cluster


async def test_gauges_go_on_while_progress_cannot_be_stored(pair, clients, monkeypatch):
    """They were brought up to date behind each save, and the age of progress began anew with each try."""
    east, west = clients
    topic = fresh("aging")
    link = pair.link(topic, heartbeats_replication=False, drain_s=1)
    await create(east, topic)
    await produce(east, topic, some(5))
    goes_on = asyncio.Event()
    save = ProgressStore.save

    async def hangs(store, entries):
        await goes_on.wait()
        await save(store, entries)

    async with running(link) as run:
        await copied_to(west, link, topic, 5)
        monkeypatch.setattr(ProgressStore, "save", hangs)
        await produce(east, topic, some(5, "later"))

        async def ages():
            return run.metric("isthmus_link_progress_age_seconds") > 3

        await eventually(ages, "progress that is not stored gets older")

        async def counted():
            return run.metric("isthmus_link_lag_records", topic=topic, partition="0") == 0

        await eventually(counted, "the lag is told meanwhile")
        goes_on.set()

        async def stored():
            return run.metric("isthmus_link_progress_age_seconds") < 1

        await eventually(stored, "all is stored")


async def test_who_looks_seldom_for_topics_begins_a_partition_again_at_once(pair, clients, monkeypatch):
    """As with MirrorMaker 2's refresh.topics.interval.seconds = 600: one that could not begin at first
    waited for the next look at topics."""
    east, west = clients
    topic = fresh("seldom")
    link = pair.link(topic, heartbeats_replication=False, refresh_topics_interval_s=600)
    await create(east, topic)
    await produce(east, topic, some(5))
    tries = []
    opens = Opener.open

    async def not_at_first(opener, *args, **kwargs):
        tries.append(1)
        if len(tries) <= 8:  # the group's first rounds look again by themselves
            raise ClientError("its leader has just moved")
        return await opens(opener, *args, **kwargs)

    monkeypatch.setattr(Opener, "open", not_at_first)
    async with running(link):
        await copied_to(west, link, topic, 5)
    assert len(tries) > 8
