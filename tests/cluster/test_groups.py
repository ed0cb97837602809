"""Groups of clients and tools that nobody here wrote, on real broker processes."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.broker import BrokerProcess, Cluster
from tests.support.group_member import BOUND_S, GroupMember, shared_out
from tests.support.groups import PARTITIONS, committed, make_topic, member_ids, produce
from tests.support.waiting import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its own files
    from kafka import KafkaConsumer

pytestmark = pytest.mark.cluster

_numbers = itertools.count()


@pytest.fixture
def name(broker: BrokerProcess) -> str:
    """A topic with six partitions; tests call their group the same."""
    return make_topic(broker, f"groups-{next(_numbers)}")


# -- librdkafka


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.slow
def test_members_come_and_go(
    broker: BrokerProcess, name: str, members: list[GroupMember], strategy: str
) -> None:
    produce(broker, name, range(600))
    for count in (1, 2, 3):
        settings = {"partition_assignment_strategy": strategy}
        members.append(GroupMember(broker.bootstrap, name, name, **settings).start())
        wait_until(lambda: shared_out(members, PARTITIONS), f"{count} members share the partitions")
    produce(broker, name, range(600, 1200))
    wait_until(
        lambda: {int(value) for member in members for value in member.values} >= set(range(1200)),
        "everything is read",
    )
    members.pop().stop()
    wait_until(lambda: shared_out(members, PARTITIONS), "two members share again")
    assert [member.lost for member in members] == [0, 0]
    wait_until(
        lambda: committed(broker, name, name) == dict.fromkeys(range(PARTITIONS), 200),
        "everything is committed",
    )


def test_a_static_member_that_restarts_disturbs_nobody(
    broker: BrokerProcess, name: str, members: list[GroupMember]
) -> None:
    settings = {"session_timeout_ms": 20_000}
    members += [
        GroupMember(broker.bootstrap, name, name, group_instance_id=f"i{number}", **settings).start()
        for number in (1, 2)
    ]
    wait_until(lambda: shared_out(members, PARTITIONS), "two static members share the partitions")
    stayed, gone = members
    before, held = stayed.rebalances, set(gone.held)
    members.pop().stop()
    back = GroupMember(broker.bootstrap, name, name, group_instance_id="i2", **settings).start()
    members.append(back)
    wait_until(lambda: back.held == held, "it has its old partitions back")
    produce(broker, name, range(60))
    wait_until(lambda: len(stayed.values) + len(back.values) == 60, "both read")
    assert stayed.rebalances == before


def test_a_second_static_member_of_the_same_name_fences_the_first(
    broker: BrokerProcess, name: str, members: list[GroupMember]
) -> None:
    members.append(GroupMember(broker.bootstrap, name, name, group_instance_id="i").start())
    wait_until(lambda: shared_out(members, PARTITIONS), "the first holds all")
    members.append(GroupMember(broker.bootstrap, name, name, group_instance_id="i").start())
    wait_until(lambda: len(members[1].held) == PARTITIONS, "the second holds all")
    wait_until(lambda: any("fenced" in each for each in members[0].errors), "the first is told")


@pytest.mark.slow
def test_a_member_that_is_killed_is_replaced_after_its_session(
    broker: BrokerProcess, name: str, members: list[GroupMember]
) -> None:
    members += [GroupMember(broker.bootstrap, name, name).start() for _ in range(2)]
    wait_until(lambda: shared_out(members, PARTITIONS), "two members share the partitions")
    script = (
        "import sys\nfrom confluent_kafka import Consumer\n"
        "consumer = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': sys.argv[2],"
        " 'session.timeout.ms': 6000})\n"
        "consumer.subscribe([sys.argv[2]], on_assign=lambda *_: print('joined', flush=True))\n"
        "while True: consumer.poll(1)\n"
    )
    command = [sys.executable, "-c", script, broker.bootstrap, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as third:
        assert third.stdout is not None
        assert third.stdout.readline() == b"joined\n"
        wait_until(lambda: sum(len(each.held) for each in members) == 4, "three members share the partitions")
        third.kill()
    wait_until(lambda: shared_out(members, PARTITIONS), "the two share again")


def test_admin_client(broker: BrokerProcess, name: str, members: list[GroupMember]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    members.append(GroupMember(broker.bootstrap, name, name, client_id="reader").start())
    wait_until(lambda: shared_out(members, PARTITIONS), "one member holds all")
    described = admin.describe_consumer_groups([name])[name].result(BOUND_S)
    assert described.state is ConsumerGroupState.STABLE
    (member,) = described.members
    assert (member.client_id, member.host) == ("reader", "/127.0.0.1")
    assert {each.partition for each in member.assignment.topic_partitions} == set(range(PARTITIONS))
    stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(BOUND_S).valid
    assert name in {each.group_id for each in stable}
    members.pop().stop()
    wanted = [TopicPartition(name, partition, 7) for partition in range(PARTITIONS)]
    altered = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, wanted)])
    assert all(each.error is None for each in altered[name].result(BOUND_S).topic_partitions)
    assert committed(broker, name, name) == dict.fromkeys(range(PARTITIONS), 7)
    assert admin.delete_consumer_groups([name])[name].result(BOUND_S) is None
    assert committed(broker, name, name) == {}


# -- other clients


@pytest.mark.slow
def test_kafka_python(broker: BrokerProcess, name: str) -> None:
    produce(broker, name, range(120))
    held: list[set[int]] = [set(), set()]
    seen: list[bytes] = []
    stop = threading.Event()

    def run(number: int) -> None:
        consumer = KafkaConsumer(
            name,
            bootstrap_servers=broker.bootstrap,
            group_id=name,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=300,
            # It forgets that it wants the topic's partitions when an older Metadata answer comes in between
            # (its ClusterMetadata.set_topics says so), and asks again only when its metadata is old.
            metadata_max_age_ms=1000,
        )
        while not stop.is_set():
            # Longer than a round takes: a member that rejoins because its metadata has changed forgets
            # a round that outlives the poll (nobody looks at its `_join_task` then) and is silent for ever.
            for rows in consumer.poll(timeout_ms=5000).values():
                seen.extend(row.value for row in rows)
            held[number] = {each.partition for each in consumer.assignment()}
        consumer.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: all(held) and sorted([*held[0], *held[1]]) == list(range(PARTITIONS)), "two share")
        wait_until(lambda: set(seen) == {b"%d" % number for number in range(120)}, "everything is read")
    finally:
        stop.set()
        for thread in threads:
            thread.join(BOUND_S)
    assert sum(committed(broker, name, name).values()) == 120


async def test_aiokafka(broker: BrokerProcess, name: str) -> None:
    await asyncio.to_thread(produce, broker, name, range(120))
    settings = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": name,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 300,
    }
    seen: set[bytes] = set()
    first, second = (AIOKafkaConsumer(name, **settings) for _ in range(2))

    async def read(consumer: AIOKafkaConsumer) -> None:
        async for row in consumer:
            seen.add(row.value)

    async with first, second, asyncio.timeout(BOUND_S):
        readers = [asyncio.create_task(read(each)) for each in (first, second)]
        while len(seen) < 120 or not (first.assignment() and second.assignment()):
            await asyncio.sleep(0.05)
        assert len(first.assignment()) + len(second.assignment()) == PARTITIONS
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    assert sum((await asyncio.to_thread(committed, broker, name, name)).values()) == 120


# -- crashes


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_killed_broker_comes_back_and_its_group_continues(
    cluster: Callable[[int], Cluster], members: list[GroupMember], strategy: str
) -> None:
    (broker,) = cluster(1).brokers.values()
    name = make_topic(broker, "t")
    # Longer than any start of a broker: sessions are not what ends here.
    settings = {"partition_assignment_strategy": strategy, "session_timeout_ms": 45_000}
    members += [GroupMember(broker.bootstrap, name, name, **settings).start() for _ in range(2)]
    wait_until(lambda: shared_out(members, PARTITIONS), "two members share the partitions")
    produce(broker, name, range(300))
    wait_until(lambda: sum(len(each.values) for each in members) >= 300, "everything is read")
    wait_until(lambda: sum(committed(broker, name, name).values()) == 300, "everything is committed")
    rebalances, ids = [each.rebalances for each in members], member_ids(broker, name)
    broker.kill()
    time.sleep(0.5)  # members notice that it is gone
    broker.start()
    produce(broker, name, range(300, 600))
    wait_until(lambda: sum(len(each.values) for each in members) >= 600, "the group goes on reading")
    wait_until(lambda: sum(committed(broker, name, name).values()) == 600, "and committing")
    assert sorted(int(value) for each in members for value in each.values) == list(range(600))
    assert [each.rebalances for each in members] == rebalances
    assert member_ids(broker, name) == ids


@pytest.mark.slow
def test_c11_positions_are_never_missing_while_the_broker_comes_back(
    cluster: Callable[[int], Cluster],
) -> None:
    """Asked without a pause from before the kill until well after the restart."""
    (broker,) = cluster(1).brokers.values()
    name = make_topic(broker, "t")
    groups = [f"group-{number}" for number in range(20)]
    for group in groups:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        wanted = [TopicPartition(name, partition, 5) for partition in range(PARTITIONS)]
        consumer.commit(offsets=wanted, asynchronous=False)
        consumer.close()
    wrong: list[object] = []
    answers = itertools.count()
    stop = threading.Event()

    def ask(group: str) -> None:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        partitions = [TopicPartition(name, partition) for partition in range(PARTITIONS)]
        while not stop.is_set():
            try:
                found = consumer.committed(partitions, timeout=5)
            except Exception:  # it is away, or says that it loads
                continue
            next(answers)
            wrong.extend(each for each in found if each.error is None and each.offset != 5)
        consumer.close()

    threads = [threading.Thread(target=ask, args=(group,)) for group in groups[:4]]
    for thread in threads:
        thread.start()
    for _ in range(2):
        broker.kill()
        broker.start()
        before = next(answers)
        wait_until(lambda before=before: next(answers) > before + 50, "answers come again")  # type: ignore[misc]
    stop.set()
    for thread in threads:
        thread.join(BOUND_S)
    assert wrong == []


def test_groups_are_spread_over_the_brokers(
    cluster: Callable[[int], Cluster], members: list[GroupMember]
) -> None:
    """Each group is served by the leader of its partition, whichever broker a client asks first."""
    both = cluster(2)
    name = make_topic(both.brokers[1], "t")
    coordinators = set()
    for number in range(6):
        asked = both.brokers[1 + number % 2]
        member = GroupMember(asked.bootstrap, f"g{number}", name).start()
        members.append(member)
        wait_until(lambda member=member: len(member.held) == PARTITIONS, "it holds all")  # type: ignore[misc]
        admin = AdminClient({"bootstrap.servers": asked.bootstrap})
        described = admin.describe_consumer_groups([f"g{number}"])[f"g{number}"].result(BOUND_S)
        coordinators.add(described.coordinator.id)
    assert coordinators == {1, 2}
    produce(both.brokers[1], name, range(60))
    wait_until(lambda: all(len(member.values) == 60 for member in members), "all read everything")
    admin = AdminClient({"bootstrap.servers": both.bootstrap})
    listed = admin.list_consumer_groups().result(BOUND_S).valid
    assert {each.group_id for each in listed} == {f"g{number}" for number in range(6)}
