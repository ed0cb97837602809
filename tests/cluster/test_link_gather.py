"""Several active clusters gathered in one for reading: the example with a stretched cluster, under load, with
sites lost; and topics of the same name at two sources that become one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from protocol.client import ClusterClient, Committed
from protocol.types import TopicPartition as Tp
from replicator.preflight import Level, check_link
from replicator.settings import LinkSettings
from tests.cluster.links import (
    Pair,
    copied_to,
    create,
    eventually,
    fresh,
    produce,
    running,
    some,
    two_brokers,
)
from tests.cluster.links import records as records_of
from tests.support.acknowledged import Load, assert_nothing_lost, read_all
from tests.support.broker import BrokerProcess
from tests.support.slow import slow
from tests.support.stretched import ROOT, RunningTopology, document_of
from tests.support.waiting import wait_until
from tests.support.zookeeper import fresh_chroot

pytestmark = pytest.mark.cluster
EXAMPLE = ROOT / "examples" / "gather-in-stretched.yaml"
PARTITIONS = 3
SOURCES = ("london", "paris")


# -- into a stretched cluster


@pytest.fixture
def gathering(tmp_path: Path) -> Iterator[RunningTopology]:
    document = document_of(EXAMPLE)
    for cluster in document["clusters"].values():
        cluster["settings"].update({"zookeeper.session.timeout.ms": 3000, "offsets.topic.num.partitions": 2})
        for topic in cluster.get("topics", {}).values():
            topic["partitions"] = PARTITIONS
    document["clusters"]["all"]["settings"]["replica.lag.time.max.ms"] = 3000
    with RunningTopology(document, tmp_path / "gathering") as started:
        yield started


Spots = dict[str, list[tuple[int, int]]]


def in_order(found: Spots) -> dict[int, list[tuple[int, str]]]:
    """(offset, value) by partition."""
    order: dict[int, list[tuple[int, str]]] = {number: [] for number in range(PARTITIONS)}
    for value, spots in found.items():
        for partition, offset in spots:
            order[partition].append((offset, value))
    return {number: sorted(pairs) for number, pairs in order.items()}


def values(found: Spots) -> dict[int, list[str]]:
    return {number: [value for _, value in pairs] for number, pairs in in_order(found).items()}


def read_some(bootstrap: str, topic: str, group: str, count: int) -> dict[int, int]:
    """The group reads so much where it lives and commits; where it stands then."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    seen = 0

    def enough() -> bool:
        nonlocal seen
        seen += len([each for each in consumer.consume(100, 0.5) if each.error() is None])
        return seen >= count

    try:
        wait_until(enough, f"{group} has read {count}")
        stands = consumer.commit(asynchronous=False)
        return {each.partition: each.offset for each in stands or () if each.offset >= 0}
    finally:
        consumer.close()


def stands(bootstrap: str, topic: str, group: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        found = consumer.committed(
            [TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=20
        )
        return {each.partition: each.offset for each in found if each.offset >= 0}
    except KafkaException:  # its coordinator is being moved
        return {}
    finally:
        consumer.close()


@slow("a topology of seven processes, two sites lost in turn")
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_active_clusters_are_gathered_in_a_stretched_one_and_a_lost_site_loses_nothing(
    gathering: RunningTopology,
) -> None:
    where = {name: gathering.bootstrap(name, name) for name in SOURCES}
    there = gathering.bootstrap("paris", "all")

    def all_of(name: str) -> Spots:
        return read_all(where[name], "flights", PARTITIONS)

    def mirror_of(name: str) -> Spots:
        return read_all(there, f"{name}.flights", PARTITIONS)

    def arrived(name: str, count: int | None = None) -> bool:
        """So many records, or as many as its source has."""
        try:
            wanted = sum(map(len, all_of(name).values())) if count is None else count
            return sum(map(len, mirror_of(name).values())) >= wanted
        except (AssertionError, KafkaException):  # its leader is being moved
            return False

    loads = {name: Load(where[name], "flights", PARTITIONS, name) for name in SOURCES}
    with contextlib.ExitStack() as stack:
        for load in loads.values():
            stack.enter_context(load)
            load.more(300)
        stood = {name: read_some(where[name], "flights", f"board-{name}", 100) for name in SOURCES}

        gathering.control("kill", "datacenter:zurich")  # a third of the target, without a word
        for load in loads.values():
            load.more(500)
        for name in SOURCES:
            so_far = len(loads[name].acknowledged)
            wait_until(
                lambda name=name, n=so_far: arrived(name, n), f"{name} arrives at two sites", bound_s=180
            )
        gathering.control("start", "datacenter:zurich")

        gathering.control("kill", "datacenter:london")  # a source, its link, and a third of the target
        loads["paris"].more(500)
        gathering.control("start", "datacenter:london")
        for load in loads.values():
            load.more(300)
    for name, load in loads.items():
        wait_until(lambda name=name: arrived(name), f"all of {name} has arrived", bound_s=180)
        here, copy = all_of(name), mirror_of(name)
        assert_nothing_lost(load, here, once=False)
        assert values(copy) == values(here), f"{name}: lost, twice or in another order"
        wait_until(
            lambda name=name: len(stands(there, f"{name}.flights", f"board-{name}")) == len(stood[name]),
            f"board-{name} stands at the gathering cluster",
            bound_s=120,
        )
        at = stands(there, f"{name}.flights", f"board-{name}")
        before, after = in_order(here), in_order(copy)
        for number, offset in stood[name].items():
            assert next(v for o, v in after[number] if o >= at[number]) == next(
                v for o, v in before[number] if o >= offset
            )


# -- one topic of two


async def names_found(
    source: ClusterClient, target: ClusterClient, link: LinkSettings, links: list[LinkSettings]
) -> list[tuple[Level, str, tuple[str, ...]]]:
    """What `isthmus links check` finds about names, in a file that declares these links."""
    found = await check_link(source, target, link, links)
    return [(one.level, one.what, one.subjects) for one in found if one.check == "names"]


async def test_topics_of_one_name_at_two_sources_become_one(zookeeper_server, tmp_path: Path) -> None:
    """Each source's records once and in their order, mixed with the other's; groups stand exactly; also after
    the links were started anew behind what the other has written since.
    """
    with two_brokers(zookeeper_server, tmp_path) as pair, contextlib.ExitStack() as stack:
        third = BrokerProcess(tmp_path / "third", fresh_chroot(zookeeper_server), 1)
        stack.callback(third.kill)
        third.start()
        topic, group = fresh("weather"), fresh("readers")
        links = [
            Pair("isthmus", source, pair.west).link(topic, naming="identity", groups=[f"{group}-{number}"])
            for number, source in enumerate((pair.east, third.bootstrap))
        ]
        links[1] = links[1].model_copy(update={"target": links[0].target})
        async with (
            ClusterClient(pair.east) as one,
            ClusterClient(third.bootstrap) as other,
            ClusterClient(pair.west) as target,
        ):
            sources = (one, other)
            for client in sources:
                await create(client, topic)
            count = 0
            for turn in range(2):
                async with running(links[0]), running(links[1]):
                    for number, client in enumerate(sources):
                        for part in range(5):
                            await produce(client, topic, some(10, f"s{number}-{turn}-{part}"))
                    count += 50
                    for link in links:
                        await copied_to(target, link, topic, count)
            for number, client in enumerate(sources):
                await client.commit(f"{group}-{number}", {Tp(topic, 0): Committed(count // 2)})
            rows = await records_of(target, topic)
            for number, client in enumerate(sources):
                wanted = [record.value for record in await records_of(client, topic)]
                assert [row.value for row in rows if row.value.startswith(b"s%d-" % number)] == wanted
            assert len(rows) == 2 * count
            alone = await names_found(one, target, links[0], [links[0]])
            assert [(level, subjects) for level, _, subjects in alone] == [(Level.ERROR, (topic,))]
            declared = await names_found(one, target, links[0], links)
            assert declared == [
                (Level.OK, f"link {links[1].name} is declared to write these topics too", (topic,))
            ]
            async with running(links[0]), running(links[1]):
                for number, client in enumerate(sources):
                    name = f"{group}-{number}"
                    following = [record.value for record in await records_of(client, topic)][count // 2]
                    exact = next(row.offset for row in rows if row.value == following)

                    async def there(name: str = name, exact: int = exact) -> bool:
                        at = await target.committed(name, [Tp(topic, 0)])
                        found = at.get(Tp(topic, 0))
                        return found is not None and found.offset == exact

                    await eventually(there, f"{name} stands at {exact}", 60)
