"""A real Connect worker runs MirrorMaker 2's connectors; a link takes what its REST API returns, and goes on
while the worker lives. Then it is handed back, and the connectors go on: all of it once, in order."""

import asyncio
import json
import urllib.error
import urllib.request

import pytest

from protocol.client import ClusterClient, Committed
from protocol.types import TopicPartition
from replicator.mirrormaker.forms import read_links
from replicator.mirrormaker.handing_back import hand_back
from tests.cluster.links import Pair, content, create, eventually, fresh, produce, records, running, some
from tests.interop.mirrormaker.launcher import connect_worker
from tests.support.apache_kafka import apache_kafka
from tests.support.slow import slow
from topology.runtime import free_ports

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    slow("starts a worker of Connect, two minutes"),
]

BOUND_S = 600


@pytest.fixture(scope="module")
def pair():
    with apache_kafka("worker-east") as east, apache_kafka("worker-west") as west:
        yield Pair("apache", east, west)


def worker_settings(pair, port):
    return f"""
bootstrap.servers={pair.west}
group.id=shared
offset.storage.topic=shared-offsets
offset.storage.partitions=3
offset.storage.replication.factor=1
config.storage.topic=shared-configs
config.storage.replication.factor=1
status.storage.topic=shared-status
status.storage.replication.factor=1
key.converter=org.apache.kafka.connect.converters.ByteArrayConverter
value.converter=org.apache.kafka.connect.converters.ByteArrayConverter
header.converter=org.apache.kafka.connect.converters.ByteArrayConverter
offset.flush.interval.ms=60000
listeners=HTTP://127.0.0.1:{port}
plugin.discovery=service_load
"""


def posted(pair, topic):
    ends = {
        "source.cluster.alias": "east",
        "target.cluster.alias": "west",
        "source.cluster.bootstrap.servers": pair.east,
        "target.cluster.bootstrap.servers": pair.west,
        "topics": topic,
        "groups": f"{topic}.*",
        "replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
        "checkpoints.topic.replication.factor": 1,
        "refresh.topics.interval.seconds": 2,
        "sync.group.offsets.enabled": True,
        "sync.group.offsets.interval.seconds": 2,
    }
    java = "org.apache.kafka.connect.mirror.Mirror"
    return {
        name: {**ends, "connector.class": f"{java}{kind}Connector", "tasks.max": 2}
        for name, kind in (("east to west", "Source"), ("marks", "Checkpoint"))
    }


class Rest:
    def __init__(self, port):
        self._url = f"http://127.0.0.1:{port}"

    async def ask(self, method, path, body=None):
        """JSON; None where nothing answers yet."""

        def ask():
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(self._url + path, data, method=method)
            request.add_header("Content-Type", "application/json")
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return answer.read().decode() or "{}"
            except (OSError, urllib.error.HTTPError):
                return None

        return await asyncio.to_thread(ask)

    async def until(self, method, path, body=None):
        async def answered():
            return await self.ask(method, path, body) is not None

        await eventually(answered, f"{method} {path}", BOUND_S)


async def test_connectors_by_rest_to_a_link_and_back(pair, tmp_path):
    topic = fresh("worker")
    here, there = TopicPartition(topic, 0), TopicPartition(f"east.{topic}", 0)
    group = f"{topic}-group"
    (port,) = free_ports(1)
    (tmp_path / "connect-distributed.properties").write_text(worker_settings(pair, port))
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic)
        await create(west, there.topic)
        await produce(west, there.topic, some(13, "foreign"))
        for number in range(8):
            await produce(east, topic, some(250, f"before-{number}"))
        with connect_worker(worker_settings(pair, port), tmp_path) as worker:
            rest = Rest(port)
            await rest.until("GET", "/connectors")
            for name, config in posted(pair, topic).items():
                await rest.until("POST", "/connectors", {"name": name, "config": config})

            async def copied(count):
                worker.must_run()
                return len(await records(west, there.topic)) >= 13 + count

            await eventually(lambda: copied(2000), "the connectors copy", BOUND_S)
            file = tmp_path / "connectors.json"
            file.write_text(await rest.ask("GET", "/connectors?expand=info&expand=status"))
            (link,) = read_links(file).links
            assert (link.name, link.take_over.connector) == ("east->west", "east to west")
            async with running(link) as ours:

                async def waits():
                    return "stop or delete east to west" in str(ours.status.to_json().get("problems"))

                await eventually(waits, "the link says that the connector runs", BOUND_S)
                for name in ("east%20to%20west", "marks"):
                    await rest.until("PUT", f"/connectors/{name}/stop")
                await east.commit(group, {here: Committed(1111)})
                await produce(east, topic, some(77, "after"))
                await eventually(lambda: copied(2077), "the link goes on", BOUND_S)

                async def translated():
                    return (await west.committed(group)).get(there, Committed(-1)).offset == 13 + 1111

                await eventually(translated, "the group's position behind the take-over is exact", BOUND_S)
                assert await ours.stop() == 0
            assert (await content(west, there.topic))[13:] == await content(east, topic)

            found = await hand_back(east, west, link, dry_run=False)
            assert [(row.tp, row.after, row.left) for row in found.rows if row.tp == here] == [
                (here, 2077, "")
            ]
            await produce(east, topic, some(50, "again"))
            for name in ("east%20to%20west", "marks"):
                await rest.until("PUT", f"/connectors/{name}/resume")
            await eventually(lambda: copied(2127), "the connector goes on", BOUND_S)
            for name in ("east%20to%20west", "marks"):
                await rest.until("PUT", f"/connectors/{name}/stop")
            await produce(east, topic, some(9, "last"))
            async with running(link) as ours:
                await eventually(lambda: copied(2136), "the link goes on behind it", BOUND_S)
                assert await ours.stop() == 0
        assert (await content(west, there.topic))[13:] == await content(east, topic)
