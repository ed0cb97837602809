"""Finding brokers, leaders, coordinators and the controller, while they move and die."""

import asyncio

import pytest

from protocol.api import ApiKey
from protocol.client import (
    LATEST,
    NO_RETRIES,
    ClusterClient,
    ConnectError,
    ConnectionLostError,
    WrongClusterError,
    parse_bootstrap,
)
from protocol.errors import KafkaError
from protocol.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from protocol.messages.list_groups_request import ListGroupsRequest
from protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse
from protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.types import TopicPartition
from tests.support.fake_broker import FakeBroker
from tests.support.fake_cluster import FAST, listed

TP = TopicPartition("t", 0)


# Bootstrap and connections


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1", [("a", 1)]),
        (" a:1 , b:65535,", [("a", 1), ("b", 65535)]),
        ("[::1]:9092", [("::1", 9092)]),
    ],
)
def test_bootstrap_addresses(text, expected):
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", ",", "a", "a:", ":1", "a:x", "a:0", "a:65536", "a:1,b"])
def test_bad_bootstrap_addresses(text):
    with pytest.raises(ValueError, match="bootstrap"):
        parse_bootstrap(text)


async def test_any_address_that_answers_will_do(cluster):
    async with FakeBroker(lambda peer: peer.reader.read()) as gone:
        dead = gone.address
    async with ClusterClient(f"{dead},{cluster.brokers[2].address}", retry=NO_RETRIES) as client:
        assert client.cluster_id == "fake"
        assert sorted(client.brokers) == [1, 2, 3]
        assert client.controller_id == 1
    with pytest.raises(ConnectError, match=f"{dead} cannot be reached"):
        async with ClusterClient(dead, retry=NO_RETRIES):
            pass


async def test_an_address_that_takes_connections_and_drops_them_is_passed_over(cluster):
    """As a proxy does whose target is gone."""

    async def hang_up(peer):
        peer.writer.transport.abort()

    async with FakeBroker(hang_up) as proxy:
        async with ClusterClient(f"{proxy.address},{cluster.brokers[2].address}", retry=NO_RETRIES) as client:
            assert client.cluster_id == "fake"
        with pytest.raises(ConnectError, match=f"{proxy.address} cannot be reached"):
            async with ClusterClient(proxy.address, retry=NO_RETRIES):
                pass


async def test_a_cluster_that_is_still_starting_is_waited_for(cluster):
    await cluster.brokers[1].stop()
    address = cluster.brokers[1].address

    async def later():
        await asyncio.sleep(0.1)
        await cluster.brokers[1].start()

    starting = asyncio.create_task(later())
    async with ClusterClient(address, retry=FAST) as client:
        assert client.cluster_id == "fake"
    await starting


async def test_a_broker_that_comes_back_is_connected_to_again(cluster, client):
    cluster.topic("t", [2])
    cluster.on(ApiKey.LIST_OFFSETS, lambda node, request: listed(request))
    assert (await client.list_offsets({TP: LATEST}))[TP].offset == 100
    await cluster.brokers[2].stop()
    with pytest.raises((ConnectionLostError, ConnectError)):
        await client.list_offsets({TP: LATEST}, retry=NO_RETRIES)
    asking = asyncio.create_task(client.list_offsets({TP: LATEST}))
    await asyncio.sleep(0.05)
    assert not asking.done()
    await cluster.brokers[2].start()
    assert (await asking)[TP].offset == 100


async def test_another_cluster_at_the_same_address_is_noticed(cluster, client):
    cluster.cluster_id = "other"
    with pytest.raises(WrongClusterError, match="was cluster fake and now is other"):
        await client.metadata(None)


async def test_closing_ends_what_is_waiting(cluster, client):
    cluster.topic("t", [1])
    never = asyncio.Event()
    cluster.on(ApiKey.LIST_OFFSETS, lambda node, request: never.wait())
    asking = asyncio.create_task(client.list_offsets({TP: LATEST}, retry=NO_RETRIES))
    while not cluster.requests(ApiKey.LIST_OFFSETS):
        await asyncio.sleep(0.005)
    await client.close()
    with pytest.raises(ConnectionLostError, match="this side closed"):
        await asking
    with pytest.raises(ConnectError, match="this client is closed"):
        await client.metadata(None)


# Sending what there is no convenience for


async def test_requests_follow_leader_coordinator_and_controller_over_lost_connections(cluster, client):
    cluster.topic("t", [1])
    lost = {1}

    def offsets(node, request):
        if node in lost:
            cluster.topic("t", [2], epoch=1)
            return None
        return listed(request)

    def groups(node, request):
        if node in lost:
            cluster.coordinator = 3
            cluster.controller = 3
            return None
        return ListGroupsResponse(groups=[ListedGroup(group_id=f"from {node}", protocol_type="")])

    cluster.on(ApiKey.LIST_OFFSETS, offsets)
    cluster.on(ApiKey.LIST_GROUPS, groups)
    row = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[row])])
    with pytest.raises(ConnectionLostError):
        await client.send_leader(TP, request)
    cluster.topic("t", [1])
    client.forget_topic("t")
    answer = await client.send_leader(TP, request, retry=FAST)
    assert answer.topics[0].partitions[0].offset == 100
    answer = await client.send_coordinator("g", ListGroupsRequest(), retry=FAST)
    assert answer.groups[0].group_id == "from 3"
    client.forget_controller()
    cluster.controller = 1
    answer = await client.send_controller(ListGroupsRequest(), retry=FAST)
    assert answer.groups[0].group_id == "from 3"
    lost.clear()
    cluster.seen.clear()
    await client.send_any(ListGroupsRequest(), highest=2)
    assert cluster.seen[-1].version == 2


async def test_a_broker_that_is_not_in_the_cluster(client):
    with pytest.raises(ConnectError, match=r"broker 9 is not in the cluster \(known: \[1, 2, 3\]\)"):
        await client.send_to(9, ListGroupsRequest())


async def test_a_broker_that_joined_later_is_found(cluster, client):
    late = FakeBroker(cluster._script(9))
    async with late:
        cluster.brokers[9] = late
        cluster.on(ApiKey.LIST_GROUPS, lambda node, request: ListGroupsResponse())
        await client.send_to(9, ListGroupsRequest())
        assert 9 in client.brokers
    del cluster.brokers[9]


async def test_a_coordinator_that_nobody_has_yet(cluster, client):
    rows = iter([Coordinator(key="g", error_code=15, error_message="electing"), None])

    def find(node, request):
        row = next(rows)
        return (
            cluster.find_coordinator(node, request)
            if row is None
            else FindCoordinatorResponse(coordinators=[row])
        )

    cluster.on(ApiKey.FIND_COORDINATOR, find)
    with pytest.raises(KafkaError, match="coordinator of group g: electing: COORDINATOR_NOT_AVAILABLE"):
        await client.coordinator("g")
    assert await client.coordinator("g") == 1


async def test_who_did_not_answer_is_asked_last(cluster, client):
    dead = [cluster.brokers[1], cluster.brokers[2]]
    for broker in dead:
        await broker.stop()
    for node in (1, 2):
        with pytest.raises((ConnectError, ConnectionLostError)):
            await client.send_to(node, ListGroupsRequest())
        with pytest.raises(ConnectError, match="cannot connect"):
            await client.send_to(node, ListGroupsRequest())
    for _ in range(20):
        assert (await client.any_connection()).peer == cluster.brokers[3].address
    for broker in dead:
        await broker.start()
