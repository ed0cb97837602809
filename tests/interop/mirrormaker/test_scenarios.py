"""What MirrorMaker 2's own integration tests ask of it, asked of our links in all three directions between
Apache Kafka and brokers of ours; Java's MirrorClient and RemoteClusterUtils say where groups go on.

Black boxes: librdkafka writes and reads, Java judges. They take minutes: ISTHMUS_SLOW=1.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import confluent_kafka
import pytest

from protocol.client import ClusterClient, Committed
from protocol.types import TopicPartition
from replicator.settings import LinkSettings
from tests.cluster.links import Pair, consumed, copied_to, create, eventually, fresh, running
from tests.interop.mirrormaker.test_java_tools import judge, listed
from tests.support.secure_side import KAFKA, SecureSide, secure_side
from tests.support.slow import slow
from tests.support.zookeeper import fresh_chroot

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    slow("starts Apache Kafka and Java for each direction"),
]
IDENTITY = {"replication_policy_class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}
DIRECTIONS = [(KAFKA, KAFKA), (KAFKA, "isthmus"), ("isthmus", KAFKA)]


@dataclass
class Both:
    """Two clusters with every kind of listener."""

    east: SecureSide
    west: SecureSide

    @property
    def pair(self) -> Pair:
        return Pair("mixed", self.east.address("PLAINTEXT"), self.west.address("PLAINTEXT"))


@pytest.fixture(scope="module", params=DIRECTIONS, ids=lambda pair: "->".join(pair))
def both(request, zookeeper_server, tmp_path_factory) -> Iterator[Both]:
    with contextlib.ExitStack() as stack:
        yield Both(
            *(
                stack.enter_context(
                    secure_side(kind, tmp_path_factory.mktemp("side"), fresh_chroot(zookeeper_server))
                )
                for kind in request.param
            )
        )


def write(bootstrap: str, topic: str, values: list[str], **settings: object) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
    for value in values:
        producer.produce(topic, value, key="k", partition=0)
    assert producer.flush(60) == 0


def numbered(tag: str, count: int) -> list[str]:
    return [f"{tag}-{number}" for number in range(count)]


async def where(link: LinkSettings, group: str, topic: str, **settings: str) -> int:
    """Where Java sends the group at the link's target."""
    at_target = link.names().at_target(topic)
    found = dict(await asyncio.to_thread(judge, link.target.bootstrap, link.source.alias, group, **settings))
    return int(found[f"offset.{at_target}-0"].partition("/")[0])


async def judged(link: LinkSettings, group: str, topic: str, wanted: int, **settings: str) -> None:
    """Once the link has written it: Java is asked until then."""
    last: list[object] = []

    async def said() -> bool:
        try:
            last.append(await where(link, group, topic, **settings))
        except (AssertionError, KeyError) as error:
            last.append(error)
        return last[-1] == wanted

    try:
        await eventually(said, f"{group} goes on at {wanted}", 240)
    except AssertionError:
        raise AssertionError(f"Java said {last[-1]!r}, not {wanted}") from None


async def _is_upstream(link: LinkSettings, group: str, copy: str) -> bool:
    """Whether MirrorClient knows the mirror, and the source, by heartbeats, which come in their own time."""
    found = dict(await asyncio.to_thread(judge, link.target.bootstrap, link.source.alias, group))
    return link.source.alias in listed(found["upstream"]) and copy in listed(found["remote"])


@pytest.mark.parametrize("naming", ["prefix", "identity"])
async def test_failover_and_failback_go_on_at_the_next_record(both: Both, naming: str) -> None:
    """testReplication, as base and as Identity: groups fail over and fall back by translated offsets."""
    pair, topic = both.pair, fresh(f"scenario-{naming}")
    group, policy = f"{topic}-group", IDENTITY if naming == "identity" else {}
    link = pair.link(f"{topic}.*", naming=naming)
    copy = link.names().at_target(topic)
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic)
        await asyncio.to_thread(write, pair.east, topic, numbered("v", 100))
        await create(west, copy)
        await asyncio.to_thread(write, pair.west, copy, numbered("foreign", 7))  # offsets differ
        await east.commit(group, {TopicPartition(topic, 0): Committed(60)})
        async with running(link):
            await copied_to(west, link, topic, 100)
            await judged(link, group, topic, 67, **policy)
            if naming == "prefix":
                await eventually(
                    lambda: _is_upstream(link, group, copy), "Java sees the source's cluster", 240
                )
        records = await consumed(pair.west, copy, 107)
        assert [value for _, _, value in records][67:69] == [b"v-60", b"v-61"]


async def test_only_what_was_committed_is_copied(both: Both) -> None:
    """…Transactions: aborted records stay away, and the group's place is exact among the markers."""
    pair, topic = both.pair, fresh("scenario-transactions")
    group, link = f"{topic}-group", pair.link(f"{topic}.*")

    def transact() -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": pair.east, "transactional.id": topic})
        producer.init_transactions(60)
        for number in range(10):
            producer.begin_transaction()
            for value in numbered(f"t{number}", 5):
                producer.produce(topic, value, key="k", partition=0)
            producer.flush(30)
            (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(60)

    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic)
        await asyncio.to_thread(transact)
        await east.commit(group, {TopicPartition(topic, 0): Committed(12)})  # t2-0 stands there
        async with running(link):
            await copied_to(west, link, topic, 60)
            await judged(link, group, topic, 5)
        there = await consumed(pair.west, f"{link.source.alias}.{topic}", 35)
        kept = [number for number in range(10) if number % 3 != 1]
        assert [value.decode() for _, _, value in there] == [v for n in kept for v in numbered(f"t{n}", 5)]


async def test_over_tls_with_a_user(both: Both) -> None:
    """…SSL: the link reaches both clusters over TLS, one as a SCRAM user, one by its certificate."""
    pair, topic = both.pair, fresh("scenario-tls")
    group, plain = f"{topic}-group", pair.link(f"{topic}.*")
    scram = both.east.java_client("SASL_SSL", "SCRAM-SHA-512")
    certificate = both.west.java_client("SSL")
    source = {"bootstrap": both.east.address("SASL_SSL"), "properties": scram}
    target = {"bootstrap": both.west.address("SSL"), "properties": certificate}
    link = plain.model_copy(
        update={
            "source": plain.source.model_copy(update=source),
            "target": plain.target.model_copy(update=target),
        }
    )
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic)
        await asyncio.to_thread(write, pair.east, topic, numbered("v", 50))
        await east.commit(group, {TopicPartition(topic, 0): Committed(20)})
        async with running(link):
            await copied_to(west, link, topic, 50)
            await judged(plain, group, topic, 20)
        there = await consumed(pair.west, f"{link.source.alias}.{topic}", 50)
        assert [value.decode() for _, _, value in there] == numbered("v", 50)
