"""The large control plane in memory, small: what its plan says is what must be."""

from bench import control_plane
from protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from protocol.messages.update_metadata_request import UpdateMetadataRequest
from protocol.types import TopicPartition

BROKERS, PARTITIONS = 12, 240


def test_replicas_are_at_all_sites_and_leaders_everywhere() -> None:
    known = control_plane.topics(PARTITIONS, BROKERS)
    chosen = [replicas for node in known.values() for replicas in node.assignment.values()]
    assert len(chosen) == PARTITIONS
    assert all({number % 3 for number in replicas} == {0, 1, 2} for replicas in chosen)
    led = [replicas[0] for replicas in chosen]
    assert {led.count(number) for number in range(BROKERS)} == {PARTITIONS // BROKERS}


def test_the_loss_of_a_site_moves_its_leaders_and_tells_each_broker_once() -> None:
    alive, known = control_plane.brokers(BROKERS), control_plane.topics(PARTITIONS, BROKERS)
    core, begun = control_plane.reign(alive, known)
    assert begun.writes == [], "all was well"
    gone = {number for number in alive if number % 3 == 2}
    plan = control_plane.lose(core, gone)
    assert len(plan.writes) == PARTITIONS, "each partition had a replica there"
    for partition, state, version in plan.writes:
        replicas = known[partition.topic].assignment[partition.partition]
        kept = tuple(number for number in replicas if number not in gone)
        assert state.isr == kept
        assert state.leader == kept[0]
        assert state.leader_epoch == (6 if replicas[0] in gone else 5), "a new term only for a new leader"
        assert version == 9
    told: dict[TopicPartition, list[int]] = {}
    for number, request, _ in plan.orders:
        assert number not in gone
        if isinstance(request, LeaderAndIsrRequest):
            for topic in request.topic_states:
                for each in topic.partition_states:
                    told.setdefault(TopicPartition(topic.topic_name, each.partition_index), []).append(number)
    for partition, state, _ in plan.writes:
        heard = set(state.isr) if state.leader_epoch == 6 else {state.leader}
        assert set(told[partition]) == heard
        assert len(told[partition]) == len(heard)
    metadata = [order for order in plan.orders if isinstance(order.request, UpdateMetadataRequest)]
    assert sorted(order.broker_id for order in metadata) == sorted(set(alive) - gone)
    for order in metadata:
        assert isinstance(order.request, UpdateMetadataRequest)
        count = sum(len(topic.partition_states) for topic in order.request.topic_states)
        assert count == PARTITIONS
    assert control_plane.encode(plan.orders) > 0


def test_one_broker_less_touches_only_what_it_had() -> None:
    alive, known = control_plane.brokers(BROKERS), control_plane.topics(PARTITIONS, BROKERS)
    core, _ = control_plane.reign(alive, known)
    plan = control_plane.lose(core, {4})
    had = {
        TopicPartition(name, index)
        for name, node in known.items()
        for index, replicas in node.assignment.items()
        if 4 in replicas
    }
    assert {write.partition for write in plan.writes} == had
