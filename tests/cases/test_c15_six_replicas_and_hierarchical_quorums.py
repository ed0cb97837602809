"""C15 with six replicas over two sites and hierarchical quorums: what a cut between the sites really does.

Three brokers and three ZooKeeper servers in each site, no third place, `min.insync.replicas` 4. The plan says
that a cut leaves no writer, and that two sides believe once both were changed by hand: both are played here.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from broker.control.zookeeper_ensemble import Ensemble, EnsembleServer
from protocol.errors import ErrorCode
from tests.support.acknowledged import Load, assert_nothing_lost, read_all
from tests.support.slow import slow
from tests.support.stretched import RunningTopology
from tests.support.waiting import wait_until
from tests.support.writer import STAMPED, Writer
from topology.quorums import quorum_warnings

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    slow("six brokers and six ZooKeeper servers start"),
]
SITES = {"west": (1, 2, 3), "east": (4, 5, 6)}
ALL = [1, 2, 3, 4, 5, 6]
SESSION_S = 6
DOCUMENT: dict[str, Any] = {
    "version": 1,
    "name": "two-sites-of-six",
    "datacenters": {site: {} for site in SITES},
    "network": {"default": {"delay": "1ms"}},
    "clusters": {
        "main": {
            "datacenter": "west",
            "zookeeper": {
                "servers": [
                    {"id": number, "datacenter": site, "group": site}
                    for site, ids in SITES.items()
                    for number in ids
                ]
            },
            "brokers": [{"id": number, "datacenter": site} for site, ids in SITES.items() for number in ids],
            "settings": {
                "default.replication.factor": 6,
                "min.insync.replicas": 4,
                "offsets.topic.replication.factor": 6,
                "offsets.topic.num.partitions": 1,
                "zookeeper.session.timeout.ms": SESSION_S * 1000,
                "replica.lag.time.max.ms": 4000,
            },
            "topics": {"t": {"partitions": 2, "replication_factor": 6, "configs": STAMPED}},
        }
    },
}


@contextmanager
def alone(running: RunningTopology, site: str) -> Iterator[None]:
    """What a person does after a cut: the other site is written out of this one's ZooKeeper configuration.

    Servers of the site are stopped, changed and started on the data they have; afterwards they are stopped.
    """
    ports, data = running.runtime.ports, running.topology.data_directory
    names = [f"main-zookeeper-{number}" for number in SITES[site]]
    running.control("stop", *names)
    members = tuple(
        EnsembleServer(number, "127.0.0.1", ports[f"{name} quorum"], ports[f"{name} election"])
        for number, name in zip(SITES[site], names, strict=True)
    )
    servers = [
        EmbeddedZooKeeper(
            data / name, port=ports[name], ensemble=Ensemble(number, members), start_timeout_s=60, heap_mb=64
        )
        for number, name in zip(SITES[site], names, strict=True)
    ]
    try:
        for server in servers:
            server.start()
        wait_until(lambda: all(server.serving() for server in servers), f"{site}'s servers alone")
        yield
    finally:
        for server in servers:
            server.stop()


def site_of(number: int) -> str:
    return next(site for site, ids in SITES.items() if number in ids)


def lead_in_both(running: RunningTopology) -> dict[str, int]:
    """Of each site a partition that it leads; rack-aware assignment gives each site one of the two."""
    running.wait_isr("t", ALL)
    found = {site_of(leader): index for index, (leader, _) in running.partitions("t").items()}
    assert found.keys() == SITES.keys()
    return found


def port_of_leader(running: RunningTopology, index: int, site: str | None = None) -> int:
    leader = running.partitions("t", site)[index][0]
    return running.runtime.ports[f"main-broker-{leader}"]


def leads(running: RunningTopology, site: str, index: int) -> bool:
    try:
        leader, isr = running.partitions("t", site)[index]
    except KafkaException:  # asked while no broker of the site answers in time
        return False
    return leader in SITES[site] and isr == list(SITES[site])


def lower(running: RunningTopology, site: str, undo: Path) -> list[str]:
    """The documented step for acks=all without the other site; returns what leads back."""
    where = ["--cluster", f"main@{site}", "-f", str(running.file), "--undo", str(undo), "--yes"]
    running.command("configs", "min-isr", "lower", "--to", "2", *where)
    return ["configs", "min-isr", "restore", *where]


async def until(condition: Any, what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what, bound_s=90.0)


async def nobody_writes(running: RunningTopology, led: dict[str, int]) -> None:
    """Both leaders, asked directly and with acks=1 even, refuse soon after the cut, and go on refusing."""
    ports = {site: port_of_leader(running, index) for site, index in led.items()}
    async with (
        Writer(ports["west"], "t", partition=led["west"]) as west,
        Writer(ports["east"], "t", partition=led["east"]) as east,
    ):
        for writer in (west, east):
            await until(lambda: len(writer.acknowledged) > 20, "writes in both sites")  # noqa: B023
        await asyncio.to_thread(running.cut, "east")
        cut = time.time()
        for writer in (west, east):
            await until(lambda: len(writer.refused) > 300, "refusals in both sites")  # noqa: B023
            assert {code for _, code in writer.refused} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
            # ZooKeeper's leader believes in its quorum for syncLimit ticks; then the lease runs out.
            assert writer.last - cut < 3 * SESSION_S


def test_a_cut_leaves_no_writer_until_a_person_keeps_one_side_and_the_way_home_loses_nothing(
    tmp_path: Path,
) -> None:
    with RunningTopology(DOCUMENT, tmp_path / "up") as running:
        assert any("LEAVES NO WRITER" in warning for warning in quorum_warnings(running.topology))
        assert "LEAVES NO WRITER" in running.output()
        led = lead_in_both(running)
        with Load(running.bootstrap("west"), "t", 2, "w", **{"message.timeout.ms": 400_000}) as load:
            load.more()
            asyncio.run(nobody_writes(running, led))
            before = len(load.acknowledged)
            running.control("kill", "datacenter:east")  # nobody may believe there while west goes on alone
            assert len(load.acknowledged) == before, "acknowledged by one site"
            with alone(running, "west"):
                for index in led.values():
                    wait_until(lambda: leads(running, "west", index), f"west leads t-{index}", bound_s=90)  # noqa: B023
                time_back = len(load.acknowledged)
                assert time_back == before, "acks=all with three of six replicas, four are asked for"
                back = lower(running, "west", tmp_path / "undo.json")
                load.more()
            # Home: as declared again, all six servers.
            running.heal()
            running.control("start", *(f"main-zookeeper-{number}" for number in ALL))
            running.control("start", "datacenter:east")
            running.wait_isr("t", ALL)
            running.command(*back)
            load.more()
        assert not load.refused
        found = read_all(running.bootstrap("east"), "t", 2, **{"client.rack": "east"})
        assert_nothing_lost(load, found)
        wait_until(lambda: running.same_replicas("t"), "the same bytes on all six brokers")


def test_two_sides_believe_when_a_person_changes_both(tmp_path: Path) -> None:
    """Both acknowledge with acks=all, at the same offsets, what the other side never gets."""
    with RunningTopology(DOCUMENT, tmp_path / "up") as running:
        led = lead_in_both(running)
        asyncio.run(nobody_writes(running, led))
        with alone(running, "west"), alone(running, "east"):
            for site in SITES:
                for index in led.values():
                    wait_until(lambda: leads(running, site, index), f"{site} leads t-{index}", bound_s=90)  # noqa: B023
                lower(running, site, tmp_path / f"undo-{site}.json")
            acknowledged = asyncio.run(both_write(running))
            found = {site: read_all(running.bootstrap(site), "t", 2) for site in SITES}
        spots = {
            site: {spot: value for value, spots in found[site].items() for spot in spots} for site in SITES
        }
        differ = [spot for spot, value in spots["west"].items() if spots["east"].get(spot, value) != value]
        assert differ, "one offset, two records"
        for site, other in (("west", "east"), ("east", "west")):
            assert acknowledged[site] <= found[site].keys()
            assert acknowledged[site].isdisjoint(found[other]), "the other side never got it"


async def both_write(running: RunningTopology) -> dict[str, set[str]]:
    """What each side's leader of t-0 acknowledged with acks=all."""
    ports = {site: port_of_leader(running, 0, site) for site in SITES}
    async with (
        Writer(ports["west"], "t", acks=-1) as west,
        Writer(ports["east"], "t", acks=-1) as east,
    ):
        for writer in (west, east):
            await until(lambda: len(writer.acknowledged) > 50, "both sides acknowledge")  # noqa: B023
        return {
            site: {value.decode() for _, value in writer.acknowledged}
            for site, writer in (("west", west), ("east", east))
        }
