"""What is said of a cluster by what its ZooKeeper servers and brokers answer, and who may be asked."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from topology.cluster_health import ClusterHealth
from topology.load import parse_topology
from topology.partition_health import PartitionHealth
from topology.runtime import Runtime
from topology.zookeeper_health import Server, ZooKeeperHealth, servers_of, zookeeper_health

WELL = PartitionHealth(1, 2, (), (), (), (), ())
SERVES, NO_QUORUM, SILENT, UNTOLD = Server.SERVES, Server.NO_QUORUM, Server.SILENT, Server.UNTOLD


def ensemble(*states: Server, ours: bool = True, heard: bool = False) -> ZooKeeperHealth:
    return ZooKeeperHealth({f"z{n}": state for n, state in enumerate(states, 1)}, ours, heard)


def cluster(zookeeper: ZooKeeperHealth, *unheard: int, **silent: str) -> ClusterHealth:
    return ClusterHealth(zookeeper, WELL, {int(n[1:]): why for n, why in silent.items()}, unheard)


@pytest.mark.parametrize(
    ("found", "serves", "healthy"),
    [
        (ensemble(SERVES, SERVES, SERVES), True, True),
        (ensemble(SERVES, SERVES, NO_QUORUM), True, False),
        (ensemble(SERVES, SERVES, SILENT), True, False),
        (ensemble(NO_QUORUM, NO_QUORUM, SILENT), False, False),
        (ensemble(SILENT, heard=True), False, False),  # until its brokers notice
        (ensemble(SERVES, UNTOLD, ours=False), True, True),
        (ensemble(UNTOLD, UNTOLD, ours=False), None, True),
        (ensemble(SILENT, SILENT, ours=False, heard=True), None, True),  # takes TLS only
        (ensemble(SILENT, SILENT, ours=False), False, False),
        (ensemble(NO_QUORUM, SILENT, ours=False, heard=True), False, False),
    ],
)
def test_an_ensemble_serves_if_one_says_so_or_nobody_can_say_otherwise(
    found: ZooKeeperHealth, serves: bool | None, healthy: bool
) -> None:
    assert found.serves is serves
    assert cluster(found).healthy is found.healthy is healthy
    assert cluster(found).as_json()["zookeeper_serves"] is serves


def test_what_everything_else_hangs_on_is_said_first_with_what_to_do() -> None:
    """Brokers know no more than what they were told last, and that looks well."""
    lost, servers, *rest = cluster(ensemble(NO_QUORUM, NO_QUORUM, SILENT), 1, 2).sentences("main", "f")
    assert lost.startswith("no ZooKeeper server serves")
    assert servers == "z1, z2: no quorum; z3: silent; isthmus start z3 -f f starts what is stopped"
    assert rest == ["2 partitions of 1 topic: all in sync"]
    first, _ = cluster(ensemble(SERVES, SERVES, NO_QUORUM)).sentences("main", "f")
    assert first == (
        "ZooKeeper serves without z3: no quorum; they go on once they reach enough of the others"
    )
    *_, foreign, _ = cluster(ensemble(SILENT, ours=False)).sentences("main", "f")
    assert "not run from here" in foreign
    first, _ = cluster(ensemble(UNTOLD, ours=False)).sentences("main", "f")
    assert first == "whether ZooKeeper serves is not known: z1: untold (`srvr` is not answered)"


def test_brokers_that_are_cut_off_or_silent_are_named() -> None:
    found = cluster(ensemble(SERVES), 2, _3="nothing within 4 s")
    assert not found.healthy
    silent, unheard, _ = found.sentences("main", "f")
    assert silent == "main-broker-3 runs and does not answer (nothing within 4 s)"
    assert unheard.startswith("ZooKeeper has not heard from main-broker-2 for most of a session")
    assert found.as_json()["brokers_unheard"] == [2]
    assert not ClusterHealth(ensemble(SERVES), None, {1: "gone"}).healthy


@pytest.mark.parametrize(
    ("connect", "servers"),
    [
        ("a:1,b:2/kafka/main", [("a", 1), ("b", 2)]),
        ("a, b:2", [("a", 2181), ("b", 2)]),
        ("[::1]:9,[fe80::2]", [("::1", 9), ("fe80::2", 2181)]),
    ],
)
def test_servers_are_read_as_kafka_reads_zookeeper_connect(
    connect: str, servers: list[tuple[str, int]]
) -> None:
    assert servers_of(connect) == servers


@pytest.fixture
def guarded() -> Iterator[int]:
    """Port of a server that may not say how it is, in ZooKeeper's words."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4)
                connection.sendall(b"srvr is not executed because it is not in the whitelist.\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


async def test_the_operators_own_servers_are_asked_where_zookeeper_connect_names_them(
    guarded: int, tmp_path: Path
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        away = nobody.getsockname()[1]
        topology = parse_topology(
            f"""\
version: 1
name: one
data_directory: {tmp_path}
datacenters: {{a: {{}}}}
clusters:
  main:
    datacenter: a
    zookeeper: {{connect: "127.0.0.1:{guarded},127.0.0.1:{away}/kafka"}}
    brokers: [{{id: 1}}]
"""
        )
        found = await zookeeper_health(topology, Runtime.load(tmp_path), "main")
    assert found == ZooKeeperHealth({f"127.0.0.1:{guarded}": UNTOLD, f"127.0.0.1:{away}": SILENT}, ours=False)
