"""Which partitions are said to lack replicas, a leader or a word, and whose answer counts."""

from dataclasses import replace

from protocol.client import Broker, Metadata, PartitionMetadata, TopicMetadata
from protocol.errors import ErrorCode
from protocol.types import TopicPartition
from topology.moves import Move
from topology.partition_health import assess, newest

BROKERS = {number: Broker("h", number) for number in (1, 2, 3)}
ID = b"t" * 16


def view(
    *states: tuple[int, int, tuple[int, ...]],
    brokers: dict[int, Broker] = BROKERS,
    controller: int = 1,
    topic_id: bytes = ID,
    name: str = "t",
) -> Metadata:
    """An answer about one topic: leader, leader epoch and ISR of each partition, all with replicas 1 to 3."""
    partitions = {
        index: PartitionMetadata(leader, epoch, (1, 2, 3), isr)
        for index, (leader, epoch, isr) in enumerate(states)
    }
    topics = {name: TopicMetadata(name, topic_id, ErrorCode.NONE, False, partitions)}
    return Metadata("c", controller, brokers, topics)


def names(*indexes: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", index) for index in indexes)


def test_each_partition_is_in_the_lists_that_name_what_it_lacks() -> None:
    two = {number: BROKERS[number] for number in (2, 3)}
    found = assess(
        view(
            (1, 5, (1, 2, 3)),
            (2, 5, (2, 3)),
            (2, 5, (2,)),
            (-1, 5, (1,)),  # its last replica is away
            (-1, 5, (2,)),  # runs, and is not elected
            brokers=two,
        ),
        {"t": 2},
    )
    assert (found.topics, found.partitions) == (1, 5)
    assert found.under_replicated == names(1, 2, 3, 4)
    assert found.at_min_isr == names(1)
    assert found.under_min_isr == names(2, 3, 4)
    assert found.offline == names(3, 4)
    assert found.waiting_for_election == names(4)
    assert not found.healthy
    counts = found.as_json()["partitions"]
    assert counts == {
        "total": 5,
        "under_replicated": 4,
        "at_min_isr": 1,
        "under_min_isr": 3,
        "offline": 2,
        "waiting_for_election": 1,
        "leader_away": 0,
        "unwritable": 3,
    }
    refused, whole, waiting = found.sentences("main", "f.yaml")
    assert refused == "t-2, t-3, t-4: no write with acks=all is acknowledged"
    assert whole.startswith("5 partitions of 1 topic: 4 under-replicated; 3 under min.insync.replicas")
    assert waiting.startswith("t-4: no leader")
    assert "isthmus elect --cluster main -f f.yaml" in waiting


def test_replicas_that_a_move_adds_are_no_lack() -> None:
    metadata = view((1, 5, (1, 2)), (1, 5, (1, 2)))
    move = Move(adding=frozenset({3}), removing=frozenset())
    assert assess(metadata, {"t": 1}, {names(0)[0]: move}).under_replicated == names(1)


def test_that_nothing_is_acknowledged_anywhere_is_said_first() -> None:
    outage = assess(view((1, 5, (1,)), (-1, 5, (3,)), brokers={1: BROKERS[1]}), {"t": 2})
    first, counts = outage.sentences("main", "f")
    assert first == "no partition acknowledges a write with acks=all"
    assert counts.startswith("2 partitions of 1 topic: 2 under-replicated")
    for others in (view((1, 5, (1,)), (1, 5, (1, 2))), view()):
        assert not any("no partition" in each for each in assess(others, {"t": 2}).sentences("main", "f"))


def test_a_leader_that_is_silent_or_unheard_takes_no_writes() -> None:
    """Its partitions look well until another broker is elected."""
    metadata = view((1, 5, (1, 2, 3)), (2, 5, (1, 2, 3)), (2, 5, (2,)), (3, 5, (3,)))
    found = assess(metadata, {"t": 1}, silent={3}, unheard=(2,))
    assert found.leader_away == names(1, 3), "one that is the whole ISR may go on"
    assert found.unwritable == names(1, 3)
    assert not replace(found, under_replicated=()).healthy
    first, counts = found.sentences("main", "f")
    assert first == "t-1, t-3: no write with acks=all is acknowledged"
    assert counts.endswith("2 under-replicated; 2 whose leader takes no writes now")


def test_what_nobody_tells_is_not_called_well() -> None:
    found = assess(view((1, 5, (1, 2, 3))), None)
    assert not found.healthy
    assert found.as_json()["under_min_isr"] is None
    assert found.as_json()["partitions"]["at_min_isr"] is None
    assert any("is not known" in sentence for sentence in found.sentences("main", "f"))


def test_a_broker_that_is_cut_off_is_not_believed() -> None:
    """Broker 1 led both, and knows nothing of its successor nor of who left an ISR whose leader stayed."""
    past = view((1, 5, (1, 2, 3)), (2, 7, (1, 2, 3)), controller=1)
    now = view((3, 6, (2, 3)), (2, 7, (2, 3)), brokers={2: BROKERS[2], 3: BROKERS[3]}, controller=3)
    for views in ({1: past, 2: now, 3: now}, {3: now, 2: now, 1: past}):
        found = newest(views)
        assert found.brokers.keys() == {2, 3}
        assert found.topics == now.topics


def test_a_new_topic_that_a_broker_was_not_told_of_is_counted() -> None:
    """Its leader epoch is 0: a broker that was cut off at that moment looks as new as the others."""
    none, now = replace(view(), topics={}), view((2, 0, (1, 2, 3)))
    for views in ({1: none, 2: now, 3: now}, {3: now, 2: none, 1: none}):
        assert newest(views).topics == now.topics


def test_with_equal_epochs_a_leader_knows_best_who_is_in_sync() -> None:
    past, now = view((2, 7, (1, 2, 3))), view((2, 7, (2,)))
    assert newest({1: past, 2: now, 3: past}).topics == now.topics


def test_a_topic_that_was_made_anew_does_not_take_its_namesakes_state() -> None:
    old = view((1, 9, (1,)), (1, 0, (1,)), topic_id=b"o" * 16)
    new = view((2, 10, (1, 2, 3)), (3, 0, (1, 2, 3)))
    assert newest({1: old, 2: new}).topics == new.topics
