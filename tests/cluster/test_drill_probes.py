"""What the runbooks' probes say of links, on real clusters: nothing passes that is not so."""

from pathlib import Path
from typing import Any

import pytest

from dr_runbooks.engine import Context
from dr_runbooks.link_probes import copy_settled, links_drained
from dr_runbooks.registry import NotYet
from protocol.client import ClusterClient
from protocol.types import TopicPartition
from replicator.settings import LinkSettings
from tests.cluster.link_commands import declared
from tests.cluster.links import Pair, copied_to, create, eventually, fresh, produce, running, some
from tests.cluster.mirrors import ends, mirror_link, mirroring
from topology.load import load_topology
from topology.runtime import Runtime

pytestmark = pytest.mark.cluster


def context_of(link: LinkSettings, folder: Path, settings: str = "") -> Context:
    file = declared(link, folder, settings)
    return Context(load_topology(file), Runtime(folder), file)


async def copied(pair: Pair, topic: str, count: int = 20, **settings: Any) -> LinkSettings:
    """A link that has copied so many records and was stopped."""
    link = pair.link(topic, **settings)
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic)
        await produce(east, topic, some(count))
        async with running(link):
            await copied_to(west, link, topic, count)
    return link


async def test_what_a_link_that_copies_exactly_once_has_copied_is_settled(pair: Pair, tmp_path: Path) -> None:
    topic = fresh("once")
    link = await copied(pair, topic, exactly_once=True)
    found = await copy_settled(context_of(link, tmp_path, "exactly_once: true"), link.name, [topic])
    assert (found["records"], found["gaps"]) == (20, 0)


async def test_a_target_topic_that_was_made_again_holds_no_copy(pair: Pair, tmp_path: Path) -> None:
    topic = fresh("again")
    link = await copied(pair, topic)
    there = link.names().at_target(topic)
    context = context_of(link, tmp_path)
    assert (await copy_settled(context, link.name, [topic]))["records"] == 20
    async with ClusterClient(pair.west) as west:
        await west.delete_topics([there])
        await create(west, there)
    with pytest.raises(NotYet, match=there):
        await copy_settled(context, link.name, [topic])


async def test_a_source_topic_that_was_made_again_is_not_drained(pair: Pair, tmp_path: Path) -> None:
    topic = fresh("reborn")
    link = await copied(pair, topic)
    context = context_of(link, tmp_path)
    assert (await links_drained(context, [link.name]))[link.name] == 20
    async with ClusterClient(pair.east) as east:
        await east.delete_topics([topic])
        await create(east, topic)
        await produce(east, topic, some(5))
    with pytest.raises(NotYet, match=topic):
        await links_drained(context, [link.name])


async def test_mirrors_with_identical_offsets_are_looked_at_too(pair: Pair, tmp_path: Path) -> None:
    topic = fresh("same")
    link = mirror_link(pair.east, pair.west, f"{topic}.*")
    context = context_of(link, tmp_path, "offsets: identical, naming: identity")
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic)
        await produce(east, topic, some(20))
        async with mirroring(link):

            async def level() -> bool:
                return topic in (await west.metadata(None)).topics and await ends(west, topic) == [20]

            await eventually(level, "the mirror is level")
        settled = await copy_settled(context, link.name, [topic])
        assert settled == {"next_offsets": {topic: {"0": 20}}, "records": 20, "gaps": 0}
        assert await links_drained(context, [link.name]) == {link.name: 20}
        await produce(east, topic, some(3))
        with pytest.raises(NotYet, match=f"3 records to copy in 1 partition: {topic}-0"):
            await links_drained(context, [link.name])
        await create(east, f"{topic}-new")
    with pytest.raises(NotYet, match=f"no mirror yet of {topic}-new"):
        await links_drained(context, [link.name])


async def test_a_gap_that_nobody_acknowledged_is_not_drained(pair: Pair, tmp_path: Path) -> None:
    topic = fresh("gap")
    link = await copied(pair, topic)
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await produce(east, topic, some(10))
        await east.delete_records({TopicPartition(topic, 0): 25})
        async with running(link):
            await copied_to(west, link, topic, 30)
    with pytest.raises(NotYet, match=rf"nobody has acknowledged: gap {topic}-0 20\.\.25"):
        await links_drained(context_of(link, tmp_path), [link.name])
