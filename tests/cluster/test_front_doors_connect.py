"""`isthmus replicate` with what people have who run MirrorMaker 2 in Kubernetes or in a Connect
cluster: Strimzi's KafkaMirrorMaker2, and connectors as the REST API returns them."""

import asyncio
import json

import pytest

from protocol.client import Committed
from protocol.records import Codec, Record
from protocol.types import TopicPartition
from replicator.layouts import OffsetSync
from replicator.mirrormaker.connect_offsets import key_of, partition_of
from replicator.mirrormaker.forms import read_links
from replicator.progress import read_ledgers
from tests.cluster.links import content, create, eventually, fresh, produce, records, running, some
from tests.support.commands import begun, ended, replicating
from tests.support.group_member import GroupMember
from tests.support.secure_side import PASSWORDS, secure_side
from tests.support.zookeeper import fresh_chroot

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

BOUND_S = 120.0


def strimzi(path, pair, topic, tag):
    """With names of its own for each test, so that one link's progress is not another's."""
    path.write_text(
        f"""
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
metadata: {{name: mover}}
spec:
  replicas: 1
  target:
    alias: west{tag}
    bootstrapServers: {pair.west}
    groupId: {topic}-connect
    configStorageTopic: {topic}-config
    offsetStorageTopic: {topic}-offset
    statusStorageTopic: {topic}-status
    config: {{offset.storage.replication.factor: -1}}
  mirrors:
  - source: {{alias: east{tag}, bootstrapServers: "{pair.east}"}}
    sourceConnector:
      tasksMax: 2
      config: {{replication.factor: -1, offset-syncs.topic.replication.factor: -1}}
    checkpointConnector:
      config: {{checkpoints.topic.replication.factor: -1, sync.group.offsets.enabled: true,
                sync.group.offsets.interval.seconds: 1}}
    topicsPattern: {topic}
    groupsPattern: {topic}.*
"""
    )
    return path


def connectors(path, pair, topic, tag):
    """As `GET /connectors?expand=info` returns them, with the worker's file beside it."""
    ends = {
        "source.cluster.alias": f"east{tag}",
        "target.cluster.alias": f"west{tag}",
        "source.cluster.bootstrap.servers": pair.east,
        "target.cluster.bootstrap.servers": pair.west,
        "replication.factor": "1",
    }
    java = "org.apache.kafka.connect.mirror"
    source = {
        **ends,
        "name": f"{topic}-copy",
        "connector.class": f"{java}.MirrorSourceConnector",
        "topics": topic,
        "offset-syncs.topic.replication.factor": "1",
    }
    marks = {
        **ends,
        "name": f"{topic}-marks",
        "connector.class": f"{java}.MirrorCheckpointConnector",
        "groups": f"{topic}.*",
        "checkpoints.topic.replication.factor": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
    }
    path.write_text(
        json.dumps(
            {
                one["name"]: {"info": {"name": one["name"], "config": one, "tasks": [], "type": "source"}}
                for one in (source, marks)
            }
        )
    )
    (path.parent / "connect-distributed.properties").write_text(
        f"group.id={topic}-connect\noffset.storage.topic={topic}-offset\n"
        f"offset.storage.replication.factor=1\nstatus.storage.topic={topic}-status\n"
    )
    return path


FORMS = pytest.mark.parametrize(
    ("write", "name"), [(strimzi, "mm2.yaml"), (connectors, "connectors.json")], ids=["strimzi", "connectors"]
)


@FORMS
async def test_a_link_runs_by_the_file_as_it_is(pair, clients, tmp_path, write, name):
    east, west = clients
    topic = fresh("forms")
    tag = topic.replace("-", "")
    link, group = f"east{tag}->west{tag}", f"{topic}-group"
    file = write(tmp_path / name, pair, topic, tag)
    await create(east, topic)
    await produce(east, topic, some(50))
    await east.commit(group, {TopicPartition(topic, 0): Committed(20)})
    code, out, err = await ended(await begun("replicate", file, "--check"))
    assert code == 0, err
    assert f"east{tag}.{topic}" in out
    code, out, err = await ended(await begun("links", "check", link, "-f", file))
    assert code == 0, out + err
    async with replicating(file) as process:
        line = await asyncio.wait_for(process.stdout.readline(), BOUND_S)
        assert f"{link} ready".encode() in line
        there = f"east{tag}.{topic}"

        async def copied():
            return there in (await west.metadata(None)).topics and len(await records(west, there)) == 50

        await eventually(copied, "the records arrive", BOUND_S)

        async def translated():
            found = await west.committed(group)
            return found.get(TopicPartition(there, 0), Committed(-1)).offset == 20

        await eventually(translated, "the group is translated", BOUND_S)
        code, out, err = await ended(await begun("links", "status", link, "-f", file))
        assert code == 0, out + err
    assert await content(east, topic) == await content(west, there)


@FORMS
async def test_what_connect_left_is_taken_over_while_its_workers_go_on(pair, clients, tmp_path, write, name):
    """The link waits for its connector to be stopped, and not for the workers: they run others too. Progress
    stands under the connector's own name, in the worker's topic."""
    east, west = clients
    topic = fresh("forms-taken")
    tag = topic.replace("-", "")
    (link,) = read_links(write(tmp_path / name, pair, topic, tag)).links
    told, there = link.take_over, f"east{tag}.{topic}"
    await create(east, topic)
    await create(west, there)
    await create(west, told.offsets_topic, 5, cleanup_policy="compact")
    await create(west, told.status_topic, cleanup_policy="compact")
    await create(east, f"mm2-offset-syncs.west{tag}.internal", cleanup_policy="compact")
    everything = some(500)
    await produce(east, topic, everything, codec=Codec.ZSTD)
    await produce(west, there, some(7, "foreign"))
    await produce(west, there, everything[:300], codec=Codec.LZ4)
    sync = OffsetSync(topic, 0, 100, 107)
    await produce(east, f"mm2-offset-syncs.west{tag}.internal", [Record(0, 0, sync.key(), sync.value())])
    key = key_of(told.connector, f"east{tag}", TopicPartition(topic, 0))
    await produce(west, told.offsets_topic, [Record(0, 0, key, b'{"offset":199}')], partition_of(key, 5))
    other = key_of("MirrorSourceConnector", f"east{tag}", TopicPartition(topic, 0))
    await produce(west, told.offsets_topic, [Record(0, 0, other, b'{"offset":9}')], 0)

    async def state(word):
        rows = [
            Record(0, 0, f"status-{what}".encode(), json.dumps({"state": word, "worker_id": "w"}).encode())
            for what in (f"connector-{told.connector}", f"task-{told.connector}-0")
        ]
        await produce(west, told.status_topic, rows)

    await state("RUNNING")
    await create(west, f"{topic}-else")
    worker = GroupMember(pair.west, told.group, f"{topic}-else").start()
    try:

        async def joined():
            return bool(worker.held)

        await eventually(joined, "a worker is in its group", BOUND_S)
        async with running(link) as process:

            async def waits():
                return f"stop or delete {told.connector}" in str(process.status.to_json().get("problems"))

            await eventually(waits, "the link waits for the connector", BOUND_S)
            assert len(await records(west, there)) == 307
            await state("STOPPED")
            rows = [Record(0, 0, f"status-task-{told.connector}-0".encode(), None)]
            await produce(west, told.status_topic, rows)

            async def complete():
                return len(await records(west, there)) >= 507

            await eventually(complete, "the link goes on", BOUND_S)
            (text,) = (note for note, _ in process.partition(topic)["notes"])
            assert "at source offset 300 (it had stored 200)" in text
            assert await process.stop() == 0
    finally:
        await asyncio.to_thread(worker.stop)
    assert (await content(west, there))[7:] == await content(east, topic)
    ledger = (await read_ledgers(west, link.name))[TopicPartition(topic, 0)]
    assert ledger.next_source_offset == 500

    # And back: what it writes stands where Connect looks for this connector.
    code, out, err = await ended(await begun("links", "hand-back", link.name, "-f", tmp_path / name))
    assert code == 0, out + err
    stored = await records(west, told.offsets_topic, partition_of(key, 5))
    assert [record.value for record in stored if record.key == key][-1] == b'{"offset":499}'


async def test_a_progress_topic_that_is_not_there_is_not_one_that_never_was(pair, clients, tmp_path):
    """Connect's topics may be at a third cluster, or be called otherwise: all would be copied twice."""
    east, west = clients
    topic = fresh("forms-elsewhere")
    tag = topic.replace("-", "")
    (link,) = read_links(connectors(tmp_path / "connectors.json", pair, topic, tag)).links
    there, syncs = f"east{tag}.{topic}", f"mm2-offset-syncs.west{tag}.internal"
    for client, name in ((east, topic), (west, there)):
        await create(client, name)
        await produce(client, name, some(40, time_ms=1_700_000_000_000))
    await create(east, syncs, cleanup_policy="compact")
    sync = OffsetSync(topic, 0, 10, 10)
    await produce(east, syncs, [Record(0, 0, sync.key(), sync.value())])
    file = tmp_path / "connectors.json"
    for command, code in ((("links", "check", "-f", file), 3), (("replicate", file, "--check"), 1)):
        found, out, err = await ended(await begun(*command))
        assert found == code, out + err
        assert f"make an empty topic {topic}-offset here" in out
    async with running(link) as process:

        async def refused():
            return f"make an empty topic {topic}-offset here" in str(process.status.to_json().get("problems"))

        await eventually(refused, "the link says that progress is missing", BOUND_S)
        assert len(await records(west, there)) == 40
        await create(west, f"{topic}-offset", cleanup_policy="compact")
        await produce(east, topic, some(5, "later"))

        async def complete():
            return len(await records(west, there)) >= 45

        await eventually(complete, "the link goes on by the syncs", BOUND_S)
        assert await process.stop() == 0
    assert await content(west, there) == await content(east, topic)


async def test_secrets_that_kubernetes_mounts_open_both_clusters(zookeeper_server, tmp_path):
    """One side by a password over TLS, the other by a certificate."""
    with secure_side("isthmus", tmp_path / "side", fresh_chroot(zookeeper_server)) as made:
        key, end, certificate = made.store.read_text().partition("-----BEGIN CERTIFICATE-----")
        for name, texts in {
            "ca": {"ca.crt": made.authority.certificate},
            "user": {"user.key": key, "user.crt": end + certificate},
            "bob": {"password": PASSWORDS["bob"]},
        }.items():
            (tmp_path / "secrets" / name).mkdir(parents=True)
            for item, text in texts.items():
                (tmp_path / "secrets" / name / item).write_text(text)
        file = tmp_path / "mm2.yaml"
        file.write_text(
            f"""
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
spec:
  connectCluster: west
  clusters:
  - alias: east
    bootstrapServers: {made.address("SSL")}
    tls: {{trustedCertificates: [{{secretName: ca, certificate: ca.crt}}]}}
    authentication:
      type: tls
      certificateAndKey: {{secretName: user, certificate: user.crt, key: user.key}}
  - alias: west
    bootstrapServers: {made.address("SASL_SSL")}
    tls: {{trustedCertificates: [{{secretName: ca, pattern: "*.crt"}}]}}
    authentication:
      type: scram-sha-512
      username: bob
      passwordSecret: {{secretName: bob, password: password}}
  mirrors:
  - {{sourceCluster: east, targetCluster: west, sourceConnector: {{}}}}
"""
        )
        (link,) = read_links(file).links
        for end_of_link in (link.source, link.target):
            async with end_of_link.at_once() as client:
                assert len((await client.metadata([])).brokers) == 1
