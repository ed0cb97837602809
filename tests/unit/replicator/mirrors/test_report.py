"""A mirror's row of `links status`: what it has, what is left, what it lacks, and where nobody says so."""

import pytest

from protocol.client.mirror_calls import MirrorStand
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from replicator.acknowledgements import Acknowledgement, Difference, Kind
from replicator.ends import SourceEnd
from replicator.link_report import LinkReport, only
from replicator.mirrors.report import mirror_row

TP = TopicPartition("orders", 0)


def stand(start, end, high_watermark=None):
    return MirrorStand(start, end, end if high_watermark is None else high_watermark, 100, 0, 0)


def row(standing, end, lacks=(), known=None):
    return mirror_row(TP, standing, end, lacks, known or {})


def test_what_not_all_replicas_have_counts_as_lag():
    found = row(stand(3, 20, 18), SourceEnd(20, first=3))
    assert (found["copied"], found["next_source_offset"], found["lag"], found["state"]) == (
        15,
        20,
        2,
        "behind",
    )
    assert row(stand(3, 20), SourceEnd(20, first=3))["state"] == "copied"


@pytest.mark.parametrize(("end", "state"), [(None, "not answer"), (SourceEnd(None, "deleted"), "deleted")])
def test_without_a_source_what_the_mirror_has_is_known_and_the_lag_is_not(end, state):
    found = row(stand(0, 20), end)
    assert (found["copied"], found["lag"], found["lost"]) == (20, None, None)
    assert state in found["state"]


def test_a_leader_that_does_not_answer_hides_neither_the_row_nor_its_gaps():
    gap = Difference(TP, Kind.GAP, 4, 9, "retention", 1)
    found = row(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE), SourceEnd(20), [gap])
    assert found["state"] == "the target says LEADER_NOT_AVAILABLE"
    assert (found["lag"], found["gaps"]) == (None, [(4, 9, "retention")])


def test_what_is_gone_at_the_source_is_lost_but_not_to_a_mirror_that_has_nothing_yet():
    assert row(stand(0, 20), SourceEnd(40, first=25))["lost"] == (20, 25)
    assert row(stand(0, 20), SourceEnd(40, first=25))["drops"] == 20
    found = row(stand(0, 0), SourceEnd(40, first=25))
    assert (found["lost"], found["drops"]) == (None, None)


def test_what_is_on_record_already_is_not_lost_again_while_the_mirror_waits_before_it():
    gaps = [
        Difference(TP, Kind.GAP, start, end, "retention", 1) for start, end in ((3, 5), (20, 25), (25, 30))
    ]
    found = row(stand(5, 20), SourceEnd(60, first=30), gaps)
    assert (found["lost"], found["drops"]) == (None, 15)
    assert row(stand(5, 20), SourceEnd(60, first=41), gaps)["lost"] == (30, 41)


def test_gaps_cuts_and_who_knows_of_them():
    gap = Difference(TP, Kind.GAP, 4, 9, "retention", 1)
    cut = Difference(TP, Kind.SUPERSEDED, 15, 18, "cut off", 2)
    found = row(stand(9, 20), SourceEnd(20), [gap, cut], {gap: Acknowledgement("me", "INC-1", 7)})
    assert (found["gaps"], found["superseded"]) == ([(4, 9, "retention")], [(15, 18, "cut off")])
    assert [(known["start"], known["why"]) for known in found["acknowledged"]] == [(4, "INC-1")]
    assert only(LinkReport([found], 5), "orders").differences == 1
