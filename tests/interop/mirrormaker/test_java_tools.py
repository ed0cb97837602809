"""Apache Kafka's MirrorClient, RemoteClusterUtils and console formatters read what our links write."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from protocol.client import ClusterClient, Committed
from protocol.types import TopicPartition
from tests.cluster.links import Pair, copied_to, create, eventually, fresh, produce, records, running, some
from tests.support.apache_kafka import apache_kafka, kafka_tool

pytestmark = [pytest.mark.interop, pytest.mark.slow]

_JUDGE = Path(__file__).with_name("Judge.java")
_FORMATTERS = "org.apache.kafka.connect.mirror.formatters."


@pytest.fixture(scope="module")
def pair():
    with apache_kafka("judge-east") as east, apache_kafka("judge-west") as west:
        yield Pair("apache", east, west)


def judge(bootstrap, alias, group):
    """What Java's client says, as a dictionary."""
    home = Path(os.environ.get("INTEROP_HOME", Path.home() / ".cache" / "isthmus-interop"))
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", f"{home}/libs/*", str(_JUDGE), bootstrap, alias, group],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.partition("=")[::2] for line in done.stdout.splitlines() if "=" in line)


async def test_java_translates_offsets_and_finds_its_way_by_our_topics(pair):
    topic, group = fresh("judged"), fresh("judged-group")
    link = pair.link("judged.*")
    alias = link.source.alias
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic, 2)
        await create(west, f"{alias}.{topic}", 2)
        await produce(west, f"{alias}.{topic}", some(4, "foreign"))
        for partition in (0, 1):
            await produce(east, topic, some(30), partition)
        here = [TopicPartition(topic, partition) for partition in (0, 1)]
        await east.commit(group, {here[0]: Committed(12, metadata="note"), here[1]: Committed(0)})
        async with running(link):
            await copied_to(west, link, topic, 30, 0)
            await copied_to(west, link, topic, 30, 1)

            async def told():
                found = await asyncio.to_thread(judge, pair.west, alias, group)
                return found if f"offset.{alias}.{topic}-1" in found else False

            await eventually(told, "checkpoints of both partitions", 60)
            found = await asyncio.to_thread(judge, pair.west, alias, group)
    assert found[f"offset.{alias}.{topic}-0"].split()[0] == "16"
    assert found[f"offset.{alias}.{topic}-1"].split()[0] == "0"
    assert f"{alias}.heartbeats" in found["heartbeats"]
    assert f"{alias}.checkpoints.internal" in found["checkpoints"]
    assert alias in found["upstream"]
    assert f"{alias}.{topic}" in found["remote"]
    assert found["hops"] == "1"


@pytest.mark.parametrize("kind", ["Heartbeat", "OffsetSync", "Checkpoint"])
async def test_console_formatters_print_our_records(pair, kind):
    topic, group = fresh("printed"), fresh("printed-group")
    link = pair.link("printed.*")
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic)
        await produce(east, topic, some(10))
        await east.commit(group, {TopicPartition(topic, 0): Committed(10)})
        async with running(link):
            await copied_to(west, link, topic, 10)
            side, name, expected = {
                "Heartbeat": (pair.west, "heartbeats", f"sourceClusterAlias={link.source.alias}"),
                "OffsetSync": (
                    pair.east,
                    f"mm2-offset-syncs.{link.target.alias}.internal",
                    f"topicPartition={topic}-0, upstreamOffset=9, downstreamOffset=9",
                ),
                "Checkpoint": (
                    pair.west,
                    f"{link.source.alias}.checkpoints.internal",
                    f"consumerGroupId={group}, topicPartition={link.source.alias}.{topic}-0, "
                    "upstreamOffset=10, downstreamOffset=10",
                ),
            }[kind]

            mark = {"OffsetSync": topic, "Checkpoint": group}.get(kind, link.source.alias).encode()

            async def written():
                client = east if side == pair.east else west
                return any(mark in (record.key or b"") for record in await records(client, name))

            await eventually(written, f"a record in {name}")
        # The link has ended, so the topic does.
        printed = await asyncio.to_thread(
            kafka_tool,
            *("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", side),
            *("--topic", name, "--from-beginning", "--timeout-ms", "5000"),
            *("--formatter", f"{_FORMATTERS}{kind}Formatter"),
        )
    assert expected in printed
