"""Hundreds of mirrored partitions: what is done to each is not done one by one, nor waited for one by one."""

from collections import Counter

import pytest

from protocol.client import ClusterClient
from replicator.mirrors.assessing import find_mirrors
from replicator.mirrors.reversing import reverse, reversible
from replicator.mirrors.switching import failover, promote
from tests.cluster.links import create, fresh, produce, some
from tests.cluster.mirrors import ends, idempotent, mirror_link, mirroring, same_logs, write

pytestmark = pytest.mark.cluster

EACH = 150
"""Partitions of each of two topics: more than are asked about at once."""


async def test_hundreds_of_partitions_change_their_roles_in_a_few_requests(
    pair, clients, tmp_path, monkeypatch
):
    asked = Counter()

    def count(name):
        of = getattr(ClusterClient, name)

        def counted(*args, **kwargs):
            asked[name] += 1
            return of(*args, **kwargs)

        monkeypatch.setattr(ClusterClient, name, counted)

    for name in ("raise_mirrors", "settle_mirrors", "change_mirrors"):
        count(name)
    east, west = clients
    topics = [fresh("many") for _ in range(2)]
    pattern = "|".join(topics)
    for topic in topics:
        await create(east, topic, EACH)
        await produce(east, topic, some(3), partition=EACH - 1)
    link = mirror_link(pair.east, pair.west, pattern)
    async with mirroring(link) as running:
        for topic in topics:
            await same_logs(east, west, topic, EACH)
        assert await running.stop() == 0
    # A term that the controller has not written yet, or a broker that starts, may cost a round more.
    assert asked["raise_mirrors"] <= 12
    asked.clear()
    said = []
    await promote(east, west, link, await find_mirrors(west, link), said.append, timeout_s=60)
    assert "250 of 300 partitions have begun a term of their own" in said
    assert asked["raise_mirrors"] <= 4
    assert asked["settle_mirrors"] == 2
    assert asked["change_mirrors"] == 2  # the source is fenced, the mirrors are opened
    writer = idempotent(pair.west)
    for topic in topics:
        assert write(writer, topic, ["new"], partition=EACH - 1) == [None]
    back = mirror_link(pair.west, pair.east, pattern, back=True)
    await reverse(east, west, await reversible(east, west, link, back.name), back.name, tmp_path, said.append)
    async with mirroring(back):
        for topic in topics:
            await same_logs(west, east, topic, EACH)
    asked.clear()
    await failover(None, east, back, await find_mirrors(east, back), said.append)
    assert asked["settle_mirrors"] == 2
    assert [(await ends(east, topic, EACH))[-1] for topic in topics] == [
        (await ends(west, topic, EACH))[-1] + 1 for topic in topics
    ]  # what ends the source's producers
