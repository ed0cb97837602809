"""Groups that have members where a log is cut: they have to read again what will stand there."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from protocol.client import Committed
from protocol.types import TopicPartition
from replicator.mirrors.assessing import find_mirrors
from replicator.mirrors.reversing import reverse, reversible
from replicator.mirrors.switching import failover
from tests.cluster.links import create, eventually, fresh, produce, some
from tests.cluster.mirrors import mirror_link, mirrored_once, quiet
from tests.support.group_member import GroupMember

pytestmark = pytest.mark.cluster


@pytest.fixture
def member() -> Iterator[Callable[..., GroupMember]]:
    """Makes members, who stop at the end."""
    made: list[GroupMember] = []

    def new(*where: str, **settings: object) -> GroupMember:
        made.append(GroupMember(*where, **settings).start())
        return made[-1]

    yield new
    for each in made:
        each.stop()


@pytest.mark.parametrize("is_there", [True, False], ids=["alive", "gone without a word"])
async def test_a_group_with_members_is_taken_back_before_what_it_has_read_is_cut(
    pair, clients, tmp_path, member, is_there
):
    east, west = clients
    topic = fresh("members")
    tp = TopicPartition(topic, 0)
    await create(east, topic)
    await produce(east, topic, some(3))
    link = mirror_link(pair.east, pair.west, topic, sync_group_offsets=False)
    await mirrored_once(east, west, link, topic)
    await produce(east, topic, some(4, "only east"))
    settings = {} if is_there else {"group_instance_id": "gone", "session_timeout_ms": 45_000}
    reader = member(pair.east, topic, topic, **settings)

    async def committed():
        return (await east.committed(topic, [tp])).get(tp, Committed(-1)).offset

    async def has_read():
        return await committed() == 7

    await eventually(has_read, "the group has read all of the old side")
    if not is_there:  # a static member does not leave
        await asyncio.to_thread(reader.stop)
    await failover(None, west, link, await find_mirrors(west, link), quiet)
    await produce(west, topic, some(4, "west"))
    told: list[str] = []
    back = mirror_link(pair.west, pair.east, topic, back=True, sync_group_offsets=False)
    names = await reversible(east, west, link, back.name)
    await reverse(east, west, names, back.name, tmp_path, told.append)
    assert any("its members have to join again" in text for text in told)
    assert await committed() == 3
    await mirrored_once(west, east, back, topic)
    if not is_there:
        reader = member(pair.east, topic, topic)

    async def read_again():
        return reader.values[-4:] == [b"west-%d" % n for n in range(4)]

    await eventually(read_again, "the group has read what stands there now")
