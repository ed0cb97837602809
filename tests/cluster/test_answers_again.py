"""Answers that are read once while they do not change: what changes is seen at once, and everything of it."""

import pytest

from protocol.client import Committed, OffsetsAgain
from protocol.types import TopicPartition
from tests.cluster.links import create, fresh

pytestmark = pytest.mark.cluster


async def test_offsets_of_a_group(clients):
    east, _ = clients
    topic = fresh("group")
    await create(east, topic, 2)
    tps = [TopicPartition(topic, index) for index in range(2)]
    again = OffsetsAgain()
    assert await east.committed(topic, again=again) == {}
    await east.commit(topic, {tps[0]: Committed(3, 0, "said")})
    first = await east.committed(topic, again=again)
    assert first == {tps[0]: Committed(3, 0, "said")}
    assert await east.committed(topic, again=again) is first
    await east.commit(topic, {tps[1]: Committed(4, 0)})
    second = await east.committed(topic, again=again)
    assert second == {**first, tps[1]: Committed(4, 0)}
    await east.delete_groups([topic])
    assert await east.committed(topic, again=again) == {}
