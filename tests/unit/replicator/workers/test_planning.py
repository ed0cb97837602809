"""What the leader tells its members: claims are respected, epochs grow, nothing is given out too early."""

from protocol.types import TopicPartition
from replicator.workers.membership import Round
from replicator.workers.messages import MemberState, WorkerInfo
from replicator.workers.planning import Planning

TPS = [TopicPartition("t", n) for n in range(4)]
ME = WorkerInfo("me", incarnation="1")


def joined(**members: MemberState) -> Round:
    return Round(1, True, {name: state.encode() for name, state in members.items()})


def state(*held: TopicPartition, **fields: object) -> MemberState:
    return MemberState(WorkerInfo("w"), held=frozenset(held), **fields)  # type: ignore[arg-type]


def test_a_worker_that_began_alone_gives_up_before_another_gets_anything():
    planning = Planning()
    alone = state(everything=True, epoch=7)
    first = planning.orders(joined(a=alone, b=state()), ME, TPS, 3, withheld=False)
    assert {one.epoch for one in first.values()} == {8}
    assert len(first["a"].partitions) == 2
    assert not first["b"].partitions
    kept = first["a"].partitions
    second = planning.orders(joined(a=state(*kept), b=state()), ME, TPS, 8, withheld=False)
    assert second["a"].partitions == kept
    assert second["b"].partitions == set(TPS) - kept
    assert not planning.changed(TPS)


def test_nothing_is_given_out_while_somebody_outside_may_copy():
    planning = Planning()
    orders = planning.orders(joined(a=state(TPS[0]), b=state()), ME, TPS, 0, withheld=True)
    assert orders["a"].partitions == {TPS[0]}
    assert not orders["b"].partitions


def test_a_partition_whose_topic_is_gone_stays_where_it_is_and_what_nobody_holds_is_forgotten():
    planning = Planning()
    gone = TopicPartition("gone", 0)
    orders = planning.orders(joined(a=state(gone)), ME, TPS[:1], 0, withheld=False)
    assert orders["a"].partitions == {gone, TPS[0]}
    planning.orders(joined(a=state(TPS[0])), ME, TPS[:1], 0, withheld=False)
    assert planning.changed([gone, TPS[0]])  # should it come back


def test_a_member_that_cannot_be_read_gets_nothing_and_different_settings_are_told():
    planning = Planning()
    told = joined(a=state(settings="x"), b=state(settings="y"))
    orders = planning.orders(Round(1, True, {**told.members, "c": b"?"}), ME, TPS, 0, withheld=False)
    assert not orders["c"].partitions
    assert "different settings" in planning.problem


def test_a_worker_that_reads_another_source_cluster_gets_nothing_and_is_told():
    planning = Planning()
    ours, theirs = (MemberState(WorkerInfo(name, source=name)) for name in ("ours", "theirs"))
    leader = WorkerInfo("me", source="ours")
    orders = planning.orders(joined(a=ours, b=theirs, c=state()), leader, TPS, 0, withheld=False)
    assert orders["a"].partitions | orders["c"].partitions == set(TPS)  # c is of a version that does not say
    assert not orders["b"].partitions
    assert orders["b"].source == "ours"
    assert orders["a"].members.keys() == {"a", "c"}
    assert "reads another source cluster (theirs) than this link (ours)" in planning.problem


def test_who_copies_already_says_which_cluster_and_not_a_leader_that_came_later():
    planning = Planning()
    copying = MemberState(WorkerInfo("w", source="ours"), everything=True)
    wrong = WorkerInfo("me", source="theirs")
    orders = planning.orders(joined(a=copying, b=MemberState(wrong)), wrong, TPS, 0, withheld=True)
    assert {one.source for one in orders.values()} == {"ours"}
    assert orders["a"].partitions == set(TPS)
    assert not orders["b"].partitions


def test_after_a_worker_came_shares_are_levelled_and_after_a_loss_they_are_not():
    planning = Planning()
    planning.orders(joined(a=state(*TPS[:3]), b=state(TPS[3])), ME, TPS, 0, withheld=False)
    assert not planning.unfinished  # this very round has moved what it could
    planning.orders(joined(a=state(*TPS[:2]), b=state(*TPS[2:])), ME, TPS, 0, withheld=False)
    lost = planning.orders(joined(a=state(*TPS[:2])), ME, TPS, 0, withheld=False)
    assert lost["a"].partitions == set(TPS)
    assert not planning.unfinished
