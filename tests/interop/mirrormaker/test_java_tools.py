"""Apache Kafka's MirrorClient, RemoteClusterUtils and formatters judge what our links write."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from protocol.client import ClusterClient, Committed
from protocol.types import TopicPartition
from replicator.layouts import Checkpoint, OffsetSync
from tests.cluster.links import Pair, copied_to, create, eventually, fresh, produce, records, running, some
from tests.support.apache_kafka import apache_kafka

pytestmark = [pytest.mark.interop, pytest.mark.slow]

_JUDGE = Path(__file__).with_name("Judge.java")


@pytest.fixture
def pair():
    with apache_kafka("judge-east") as east, apache_kafka("judge-west") as west:
        yield Pair("apache", east, west)


def judge(*arguments):
    """What Java says, as (name, value) pairs."""
    home = Path(os.environ.get("INTEROP_HOME", Path.home() / ".cache" / "isthmus-interop"))
    done = subprocess.run(
        ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{home}/libs/*", str(_JUDGE), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.partition("=")[::2] for line in done.stdout.splitlines() if "=" in line]


async def test_java_translates_offsets_and_finds_its_way_by_our_topics(pair):
    topic, group = fresh("judged"), fresh("judged-group")
    link = pair.link("judged.*")
    alias, target = link.source.alias, f"{link.source.alias}.{topic}"
    syncs, checkpoints = f"mm2-offset-syncs.{link.target.alias}.internal", f"{alias}.checkpoints.internal"
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic, 2)
        await create(west, target, 2)
        await produce(west, target, some(4, "foreign"))  # so that offsets differ on the two sides
        for partition in (0, 1):
            await produce(east, topic, some(30), partition)
        here = [TopicPartition(topic, partition) for partition in (0, 1)]
        await east.commit(group, {here[0]: Committed(12), here[1]: Committed(0)})
        async with running(link):
            await copied_to(west, link, topic, 30, 0)
            await copied_to(west, link, topic, 30, 1)

            async def written():
                points = [Checkpoint.read(r.key, r.value) for r in await records(west, checkpoints)]
                pairs = [OffsetSync.read(r.key, r.value) for r in await records(east, syncs)]
                return (
                    Checkpoint(group, target, 0, 12, 16) in points
                    and Checkpoint(group, target, 1, 0, 0) in points
                    and OffsetSync(topic, 0, 29, 33) in pairs
                    and await records(west, f"{alias}.heartbeats")
                )

            await eventually(written, "checkpoints, offset syncs and heartbeats")
    said = await asyncio.to_thread(
        judge,
        *(pair.west, alias, group),
        *(pair.west, "heartbeats", "HeartbeatFormatter"),
        *(pair.east, syncs, "OffsetSyncFormatter"),
        *(pair.west, checkpoints, "CheckpointFormatter"),
    )
    found = dict(said)
    assert found[f"offset.{target}-0"].startswith("16/")
    assert found[f"offset.{target}-1"].startswith("0/")
    assert found["heartbeats"] == f"[{alias}.heartbeats, heartbeats]"
    assert found["checkpoints"] == f"[{checkpoints}]"
    assert found["upstream"] == f"[{alias}]"
    assert target in found["remote"]
    assert found["hops"] == "1"
    printed = [value for name, value in said if name.endswith("Formatter")]
    beat = f"sourceClusterAlias={alias}, targetClusterAlias={link.target.alias}"
    assert any(beat in row for row in printed)
    assert any(f"topicPartition={topic}-0, upstreamOffset=29, downstreamOffset=33" in row for row in printed)
    point = f"consumerGroupId={group}, topicPartition={target}-0, upstreamOffset=12, downstreamOffset=16"
    assert any(point in row for row in printed)
