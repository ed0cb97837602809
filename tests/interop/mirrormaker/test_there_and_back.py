"""A real MirrorMaker 2 4.3, then a link, MirrorMaker 2 again, and the link again, all by one properties file:
each record is at the target once, and Java's MirrorClient knows where groups go on.

One topic MirrorMaker 2 had from the start, one was born while the link copied.
"""

import asyncio
import json
import sys

import pytest

from protocol.client import ClusterClient, Committed
from protocol.types import TopicPartition
from replicator.mirrormaker.file import parse_mirrormaker
from replicator.progress import read_ledgers
from tests.cluster.links import content, copied_to, create, eventually, fresh, produce, records, running, some
from tests.interop.mirrormaker.launcher import mirrormaker
from tests.interop.mirrormaker.test_java_tools import judge
from tests.interop.mirrormaker.test_takeover import mirrored, pair, settings
from tests.support.slow import slow

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    slow("starts MirrorMaker 2 twice, a minute"),
]

__all__ = ["pair"]
BOUND_S = 300
FOREIGN = 13
"""Records that stand before the copies, so that offsets differ on the two sides."""


async def handed_back(link, file):
    """What the command says, for machines."""
    command = ("links", "hand-back", link.name, "-f", str(file), "--json")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "isthmus", *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    said = json.loads(out)["partitions"]
    return {(row["topic"], row["partition"]): (row["before"], row["after"]) for row in said}


def groups_at(pair, link, group, topic):
    """By Java's MirrorClient."""
    found = dict(judge(pair.west, link.source.alias, group))
    return int(found[f"offset.{topic}-0"].partition("/")[0])


async def test_each_record_is_copied_once_by_mirrormaker_link_mirrormaker_and_link(pair, tmp_path):
    topic = fresh("back")
    born, group = f"{topic}-born", f"{topic}-group"
    text = settings(pair, f"{topic}.*", "back", 500)
    (link,) = parse_mirrormaker(text).links
    here, mirror = TopicPartition(topic, 0), f"eastback.{topic}"
    (tmp_path / "link.properties").write_text(text)
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:

        async def more(number, name=topic, count=1000):
            for part in range(4):
                await produce(east, name, some(count // 4, f"{number}-{part}"))

        async def translated(offset):
            async def there():
                found = await west.committed(group)
                return found.get(TopicPartition(mirror, 0), Committed(-1)).offset == FOREIGN + offset

            await eventually(there, "the group's position is translated", BOUND_S)

        await create(east, topic)
        await create(west, mirror)
        await produce(west, mirror, some(FOREIGN, "foreign"))
        await more(1)
        with mirrormaker(text, tmp_path) as process:
            await mirrored(west, mirror, FOREIGN + 1000, process)
            await asyncio.to_thread(process.stop)

        await create(east, born)
        await more(2)
        await more(2, born, 100)
        await east.commit(group, {here: Committed(1234)})
        async with running(link) as ours:
            await copied_to(west, link, born, 100)
            await copied_to(west, link, topic, 2000)
            await translated(1234)
            assert await ours.stop() == 0
        said = await handed_back(link, tmp_path / "link.properties")
        assert said == {(topic, 0): (1000, 2000), (born, 0): (None, 100)}
        assert await handed_back(link, tmp_path / "link.properties") == {
            (topic, 0): (2000, 2000),
            (born, 0): (100, 100),
        }

        await more(3)
        await more(3, born, 100)
        with mirrormaker(text, tmp_path) as process:
            await mirrored(west, mirror, FOREIGN + 3000, process)
            await mirrored(west, f"eastback.{born}", 200, process)
            await asyncio.to_thread(process.stop)
        assert groups_at(pair, link, group, mirror) == FOREIGN + 1234

        await more(4)
        await more(4, born, 100)
        await east.commit(group, {here: Committed(3456)})
        async with running(link) as ours:
            await copied_to(west, link, born, 300)
            await copied_to(west, link, topic, 4000)
            await translated(3456)
            assert await ours.stop() == 0
        assert (await content(west, mirror))[FOREIGN:] == await content(east, topic)
        assert await content(west, f"eastback.{born}") == await content(east, born)
        assert len(await records(west, mirror)) == FOREIGN + 4000
        assert groups_at(pair, link, group, mirror) == FOREIGN + 3456
        ledger = (await read_ledgers(west, link.name))[here]
        assert [tuple(run) for run in ledger.runs] == [(0, FOREIGN, 4000)]
