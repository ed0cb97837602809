"""The controller's decisions and orders, with everything around it in memory."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.control.nodes import PartitionState
from broker.control.orders import StoredState
from broker.control.proposed_isr import IsrProposal
from protocol.errors import ErrorCode
from protocol.types import TopicPartition
from tests.support.control_world import FakeBroker, World, live

THREE = {number: live(number) for number in (1, 2, 3)}


def test_a_new_topic_gets_leaders_and_everybody_knows():
    world = World(THREE)
    world.create("t", {0: (1,), 1: (2,), 2: (3,)})
    assert world.leaders("t") == [1, 2, 3]
    for number in THREE:
        told = world.told[number]
        assert [told.cache.leader("t", index) for index in range(3)] == [1, 2, 3]
        assert told.hosted == {TopicPartition("t", number - 1): (number, 0)}
        assert told.cache.topic_id("t") == world.topics["t"].topic_id
        assert sorted(told.cache.brokers) == [1, 2, 3]


def test_leadership_is_told_before_metadata():
    world = World({1: live(1)})
    world.sent.clear()
    world.create("t", {0: (1,)})
    assert world.sent == [(1, "LeaderAndIsrRequest"), (1, "UpdateMetadataRequest")]


def test_a_partition_without_living_replicas_waits_for_one():
    world = World({1: live(1)})
    world.create("t", {0: (2,)})
    assert world.stored == {}
    assert world.told[1].cache.topic("t") is None
    world.brokers_are({1: live(1), 2: live(2)})
    assert world.leaders("t") == [2]
    assert world.told[1].cache.leader("t", 0) == 2


def test_a_lost_broker_leaves_its_partitions_without_a_leader_and_takes_them_back():
    world = World(THREE)
    world.create("t", {0: (1,), 1: (2,)})
    world.brokers_are({1: live(1), 3: live(3)})
    assert world.state("t", 1) == PartitionState(-1, 1, (2,), 1)
    assert world.told[1].cache.leader("t", 1) == -1
    assert world.told[1].cache.partition("t", 1).offline_replicas == (2,)
    world.told[2] = FakeBroker()
    world.brokers_are({**THREE, 2: live(2, epoch=9)})
    assert world.state("t", 1) == PartitionState(2, 2, (2,), 1)
    assert world.told[2].hosted == {TopicPartition("t", 1): (2, 2)}
    assert world.told[2].cache.leader("t", 0) == 1
    assert world.told[3].cache.partition("t", 1).offline_replicas == ()


def test_a_broker_that_was_away_without_being_missed_leads_with_a_new_epoch():
    world = World(THREE)
    world.create("t", {0: (1,)})
    world.brokers_are({**THREE, 1: live(1, epoch=2)})
    assert world.state("t", 0) == PartitionState(1, 1, (1,), 1)


def test_a_new_controller_tells_everything_again():
    world = World(THREE)
    world.create("t", {0: (1,), 1: (2,)})
    world.told = {number: FakeBroker() for number in (2, 3)}
    world.elect({2: live(2), 3: live(3)}, epoch=2)
    assert world.state("t", 0) == PartitionState(-1, 1, (1,), 2)
    assert world.state("t", 1) == PartitionState(2, 0, (2,), 1)  # untouched
    assert world.told[2].cache.controller_epoch == 2
    assert [world.told[3].cache.leader("t", index) for index in (0, 1)] == [-1, 2]
    assert world.told[2].hosted == {TopicPartition("t", 1): (2, 0)}


def test_growth_reaches_everybody():
    world = World(THREE)
    world.create("t", {0: (1,)})
    world.grow("t", {0: (1,), 1: (3,)})
    assert world.leaders("t") == [1, 3]
    assert world.told[2].cache.leader("t", 1) == 3
    assert world.told[3].hosted == {TopicPartition("t", 1): (3, 0)}


def test_deletion_stops_replicas_and_is_forgotten_by_all():
    world = World(THREE)
    world.create("t", {0: (1,), 1: (2,)})
    world.create("kept", {0: (1,)})
    assert world.delete("t") == ["t"]
    assert world.delete("t") == []  # under way
    for number in THREE:
        assert world.told[number].cache.topic("t") is None
    assert world.told[1].hosted == {TopicPartition("kept", 0): (1, 0)}
    world.brokers_are({1: live(1), 3: live(3)})  # no leader is elected for what is being deleted
    assert world.state("t", 1).leader == 2
    world.vanish("t")
    world.create("t", {0: (3,)})
    assert world.told[1].cache.leader("t", 0) == 3


def test_a_topic_recreated_behind_our_back_is_another_topic():
    world = World(THREE)
    world.create("t", {0: (1,)})
    first = world.topics["t"].topic_id
    del world.stored[TopicPartition("t", 0)]
    world.create("t", {0: (2,)})
    assert world.topics["t"].topic_id != first
    assert world.told[1].hosted == {}
    assert world.told[2].hosted == {TopicPartition("t", 0): (2, 0)}
    assert world.told[3].cache.topic_id("t") == world.topics["t"].topic_id


def test_a_leaving_broker_hands_over_what_others_have():
    world = World(THREE)
    world.create("alone", {0: (1,)})
    world.create("shared", {0: (1, 2)})
    assert world.leave(1) == [TopicPartition("alone", 0)]
    assert world.state("shared", 0) == PartitionState(2, 1, (2,), 1)


def test_a_leaving_follower_is_not_waited_for_and_does_not_come_back():
    world = World(THREE)
    world.create("t", {0: (1, 2, 3)})
    world.sent.clear()
    assert world.leave(2) == []
    assert world.state("t", 0) == PartitionState(1, 0, (1, 3), 1)
    assert [number for number, kind in world.sent if kind == "LeaderAndIsrRequest"] == [1]
    version = world.stored[TopicPartition("t", 0)].version
    again = IsrProposal(0, version, ((1, 1), (2, 1), (3, 1)))
    code, _ = world.core.propose_isr(1, TopicPartition("t", 0), again)
    assert code == ErrorCode.INELIGIBLE_REPLICA


def test_a_leaving_leader_may_take_in_who_shall_take_over():
    world = World(THREE)
    world.create("t", {0: (1, 2)})
    world.in_sync("t", 0, 1)
    assert world.leave(1) == [TopicPartition("t", 0)]
    joining = IsrProposal(0, world.stored[TopicPartition("t", 0)].version, ((1, 1), (2, 1)))
    code, write = world.core.propose_isr(1, TopicPartition("t", 0), joining)
    assert code == ErrorCode.NONE
    assert write is not None
    world.isr_stored(write)
    assert world.leave(1) == []
    assert world.state("t", 0) == PartitionState(2, 1, (2,), 1)


@pytest.mark.parametrize("unclean", [False, True])
def test_a_leaving_leader_that_nobody_can_relieve_leads_until_it_is_gone(unclean: bool):
    """Broker 1 alone has what was acknowledged: whatever happens to others, nobody is elected over it."""
    world = World(THREE, unclean=unclean)
    world.create("t", {0: (1, 2), 1: (1, 3)})
    world.in_sync("t", 0, 1)
    world.in_sync("t", 1, 1)
    left = [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert world.leave(1) == left
    before = [world.stored[each] for each in left]
    world.brokers_are({1: live(1), 3: live(3)})
    world.brokers_are({1: live(1), 2: live(2, epoch=9), 3: live(3)})
    world.grow("t", {0: (1, 2), 1: (1, 3), 2: (2, 1)})
    world.lose(3, left[1])
    assert [world.stored[each] for each in left] == before
    assert world.state("t", 2).leader == 2
    assert world.leave(1) == left
    world.brokers_are({2: live(2, epoch=9), 3: live(3)})
    assert [world.state("t", each).leader for each in (0, 1)] == ([2, -1] if unclean else [-1, -1])


def test_a_leaving_leader_whose_log_directory_fails_leads_no_more():
    world = World(THREE)
    world.create("t", {0: (1, 2)})
    world.in_sync("t", 0, 1)
    key = TopicPartition("t", 0)
    assert world.leave(1) == [key]
    world.lose(1, key)
    assert world.state("t", 0).leader == -1


def test_unclean_election_needs_permission():
    for unclean, leader in ((False, -1), (True, 2)):
        world = World(THREE, unclean=unclean)
        world.create("t", {0: (1, 2)})
        world.in_sync("t", 0, 1)
        world.brokers_are({2: live(2), 3: live(3)})
        assert world.state("t", 0).leader == leader
        assert world.unclean == ([(TopicPartition("t", 0), 2)] if unclean else [])


def test_a_leader_that_was_in_sync_is_no_unclean_election():
    world = World(THREE, unclean=True)
    world.create("t", {0: (1, 2)})
    world.brokers_are({2: live(2), 3: live(3)})
    assert world.state("t", 0).leader == 2
    assert world.unclean == []


def test_a_new_partition_outlives_its_first_leader():
    """Nobody has had the time to copy anything: another replica leads, be it that the first is gone or has
    no room for it."""
    world = World(THREE)
    world.create("t", {0: (1, 2, 3)})
    world.brokers_are({2: live(2), 3: live(3)})
    assert world.state("t", 0) == PartitionState(2, 1, (2, 3), 1)
    world.told[2].failed.add(TopicPartition("full", 0))
    world.create("full", {0: (2, 3)})
    world.lose(2, TopicPartition("full", 0))
    assert world.state("full", 0)[:3] == (3, 1, (3,))


class Churn(RuleBasedStateMachine):
    """Brokers come and go, topics are made and deleted, controllers change: told and stored always agree."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = {1: live(1), 2: live(2)}
        self.world = World(self.alive)
        self.epochs = 1
        self.made = 0
        self.reigns = 1

    @rule(number=st.integers(1, 4))
    def toggle(self, number: int) -> None:
        self.epochs += 1
        if number in self.alive:
            del self.alive[number]
        else:
            self.alive[number] = live(number, self.epochs)
            self.world.told[number] = FakeBroker()
        self.world.brokers_are(dict(self.alive))

    @rule(number=st.integers(1, 4))
    def restart(self, number: int) -> None:
        if number in self.alive:
            self.epochs += 1
            self.alive[number] = live(number, self.epochs)
            self.world.told[number] = FakeBroker()
            self.world.brokers_are(dict(self.alive))

    @rule(
        replicas=st.lists(
            st.permutations([1, 2, 3, 4]).map(lambda item: tuple(item[:2])), min_size=1, max_size=3
        )
    )
    def create(self, replicas: list[tuple[int, ...]]) -> None:
        self.made += 1
        self.world.create(f"t{self.made}", dict(enumerate(replicas)))

    @rule()
    def delete_oldest(self) -> None:
        if self.world.topics:
            name = next(iter(self.world.topics))
            self.world.delete(name)
            self.world.vanish(name)

    @rule()
    def new_controller(self) -> None:
        self.reigns += 1
        self.world.elect(dict(self.alive), self.reigns)

    @invariant()
    def leaders_live_and_are_in_sync(self) -> None:
        for stored in self.world.stored.values():
            leader = stored.state.leader
            assert leader == -1 or (leader in self.alive and leader in stored.state.isr)
            assert stored.state.isr

    @invariant()
    def nobody_alive_in_sync_waits_for_leadership(self) -> None:
        for stored in self.world.stored.values():
            if stored.state.leader == -1:
                assert not set(stored.state.isr) & set(self.alive)

    @invariant()
    def everybody_alive_knows_what_is_stored(self) -> None:
        for number in self.alive:
            told = self.world.told[number]
            known = {
                TopicPartition(topic.name, index): (info.leader, info.leader_epoch)
                for topic in told.cache.topics.values()
                for index, info in topic.partitions.items()
            }
            stored = {
                key: (value.state.leader, value.state.leader_epoch)
                for key, value in self.world.stored.items()
            }
            assert known == stored
            hosted = {
                key: value
                for key, value in stored.items()
                if number in self.world.topics[key.topic].assignment[key.partition]
            }
            assert told.hosted == hosted


TestChurn = Churn.TestCase
TestChurn.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_a_failed_log_directory_takes_its_partitions_and_no_others():
    world = World(THREE)
    world.create("t", {0: (1,), 1: (1,), 2: (2,)})
    world.sent.clear()
    world.lose(1, TopicPartition("t", 0))
    assert world.leaders("t") == [-1, 1, 2]
    assert world.state("t", 0).isr == (1,)
    for number in THREE:
        cache = world.told[number].cache
        assert cache.leader("t", 0) == -1
        assert cache.partition("t", 0).offline(cache.brokers) == [1]
        assert cache.partition("t", 1).offline(cache.brokers) == []
    assert [number for number, kind in world.sent if kind == "LeaderAndIsrRequest"].count(2) == 0


def test_a_replica_with_a_working_directory_takes_over():
    world = World(THREE)
    world.create("t", {0: (1, 2, 3)})
    world.stored[TopicPartition("t", 0)] = StoredState(PartitionState(1, 0, (1, 2, 3), 1), 5)
    world.elect(THREE, 2)
    world.lose(1, TopicPartition("t", 0))
    assert world.state("t", 0)[:3] == (2, 1, (2, 3))
    assert world.told[3].cache.partition("t", 0).offline(THREE) == [1]
    world.lose(2, TopicPartition("t", 0))
    world.lose(3, TopicPartition("t", 0))
    assert world.state("t", 0)[0] == -1
    assert world.state("t", 0)[2] == (3,)


def test_directories_that_failed_at_a_start_are_told_by_the_first_answer_and_a_restart_mends_them():
    world = World(THREE)
    world.create("t", {0: (1,), 1: (1,)})
    world.told[1].failed.add(TopicPartition("t", 1))
    world.brokers_are({**THREE, 1: live(1, epoch=2)})
    assert world.leaders("t") == [1, -1]
    world.told[1].failed.clear()
    world.brokers_are({**THREE, 1: live(1, epoch=3)})
    assert world.leaders("t") == [1, 1]
    assert world.told[2].cache.partition("t", 1).offline(THREE) == []


def test_a_new_controller_learns_of_failed_directories():
    world = World(THREE)
    world.create("t", {0: (1,), 1: (1,)})
    world.lose(1, TopicPartition("t", 0))
    world.elect(THREE, 2)
    assert world.leaders("t") == [-1, 1]
    assert world.told[2].cache.partition("t", 0).offline(THREE) == [1]


def test_a_topic_made_anew_is_not_offline_because_the_earlier_one_was():
    world = World(THREE)
    world.create("t", {0: (1,)})
    world.lose(1, TopicPartition("t", 0))
    world.delete("t")
    world.vanish("t")
    world.told[1].failed.clear()
    world.create("t", {0: (1,)})
    assert world.leaders("t") == [1]


def test_a_late_answer_of_an_earlier_life_counts_for_nothing():
    world = World(THREE)
    world.create("t", {0: (1,)})
    failed = {TopicPartition("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}
    assert world.core.answered(1, 0, failed) == []
    assert world.core.answered(9, 1, failed) == []
    assert len(world.core.answered(1, 1, failed)) == 1


def test_an_answer_about_a_topic_that_is_being_deleted_does_not_bring_it_back():
    world = World(THREE)
    world.create("t", {0: (1, 2)})
    world.delete("t")
    world.core.answered(1, 1, {TopicPartition("t", 0): ErrorCode.KAFKA_STORAGE_ERROR})
    assert world.core.take_orders() == []


def test_a_broker_that_was_away_while_there_was_no_controller_starts_from_behind():
    world = World(THREE)
    world.create("t", {0: (1, 2), 1: (2, 1), 2: (1,)})
    for index in (0, 1):
        world.in_sync("t", index, 1, 2)
    world.zxids = dict.fromkeys(world.stored, 100)
    world.elect({1: live(1, epoch=101), 2: live(2, epoch=99), 3: live(3, epoch=101)}, epoch=2)
    assert world.state("t", 0)[:3] == (2, 1, (2,)), "the end of its log may be lost"
    assert world.state("t", 1)[:3] == (2, 0, (2,))
    assert world.state("t", 2)[:3] == (1, 1, (1,)), "nobody else has it"
