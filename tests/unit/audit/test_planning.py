"""What may be compared: cuts, expired heads, gaps, positions; and sides that answer wrongly for a while."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.lanes import Ends, Split, bundle, even_cuts, split_lane, with_ledger, without_ledger
from audit.planning import make_plan
from audit.positions import Positions
from audit.result import AuditResult, Counts
from audit.settings import AuditSettings, ByContent, ClusterSide, LinkLedger, RestoreLedger, TopicPair
from audit.sides import ClusterView, TopicView
from connectors.object_store import ObjectStoreSettings
from protocol.client import LATEST, ListedOffset
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from transfer.ledger import ALL_COPIED, NOTHING_MISSING, Copied, Gap, Lineage, PartitionLedger
from transfer.offset_map import OffsetMap, Run

TP = TopicPartition("t", 0)
TEN = Ends(0, 10)


def ledger(*runs: Run, end: int, start: int = 0, gaps: tuple[Gap, ...] = ()) -> PartitionLedger:
    made = PartitionLedger(Lineage("a", "A", *TP), Lineage("b", "B", *TP), OffsetMap(start, 0))
    for run in runs:
        made.runs.append(run)
    made.runs.cover_to(end)
    made.gaps += gaps
    return made


def test_only_what_is_copied_and_still_there_is_compared() -> None:
    made = ledger(Run(0, 0, 100), Run(110, 100, 90), end=200)
    lane = with_ledger(0, TP, made, Ends(0, 250), Ends(0, 190))
    assert (lane.source_range, lane.target_range) == ((0, 200), (0, 190))
    assert (lane.pending_source, lane.pending_target, lane.divergent) == (50, 0, 0)


def test_heads_that_expired_are_no_loss() -> None:
    made = ledger(Run(0, 0, 100), Run(110, 100, 90), end=200)
    lane = with_ledger(0, TP, made, Ends(20, 200), Ends(130, 190))
    assert (lane.source_range, lane.target_range) == ((140, 200), (130, 190))
    assert lane.expired_source == 20
    assert lane.expired_target == 80 + 30
    lane = with_ledger(0, TP, made, Ends(120, 200), Ends(0, 190))
    assert (lane.source_range, lane.target_range) == ((120, 200), (110, 190))
    assert (lane.expired_source, lane.expired_target) == (110, 0)


def test_everything_may_have_expired() -> None:
    made = ledger(Run(0, 0, 100), end=100)
    lane = with_ledger(0, TP, made, Ends(100, 100), Ends(0, 100))
    assert lane.source_range == (100, 100)
    assert lane.target_range == (100, 100)
    assert lane.expired_source == 100


def test_a_source_that_was_truncated_is_told_from_duplicates() -> None:
    made = ledger(Run(0, 0, 100), end=100)
    lane = with_ledger(0, TP, made, Ends(0, 70), Ends(0, 100))
    assert (lane.source_range, lane.target_range, lane.divergent) == ((0, 70), (0, 70), 30)
    assert "truncated" in lane.notes[0]


def test_gaps_count_inside_the_compared_range_only() -> None:
    made = ledger(Run(0, 0, 50), Run(80, 50, 20), end=100, gaps=(Gap(50, 80, "retention passed"),))
    assert with_ledger(0, TP, made, Ends(0, 100), Ends(0, 70)).gap_offsets == 30
    assert with_ledger(0, TP, made, Ends(70, 100), Ends(0, 70)).gap_offsets == 10


def test_a_gap_that_the_source_has_lost_too_is_still_a_gap() -> None:
    made = ledger(Run(0, 0, 50), Run(80, 50, 20), end=100, gaps=(Gap(50, 80, "retention passed"),))
    lane = with_ledger(0, TP, made, Ends(90, 100), Ends(0, 70))
    assert (lane.gap_offsets, lane.gap_expired) == (0, 30)
    assert not result_with(Counts(gap_expired=30)).clean
    assert result_with(Counts()).clean


def test_a_gap_of_which_nobody_knows_how_much_it_is_is_no_agreement() -> None:
    """A topic was created again while the link was down. One that hides nothing is only there to be read."""
    made = ledger(Run(0, 0, 100), end=100)
    made.former_gaps.append(Gap(40, 40, "source topic re-created; what it held behind is not known", 1))
    made.gaps.append(Gap(0, 0, f"target topic re-created; {NOTHING_MISSING}", 1))
    made.former_gaps.append(Gap(7, 7, f"source topic re-created; {ALL_COPIED}", 1))
    lane = with_ledger(0, TP, made, Ends(0, 100), Ends(0, 100))
    assert (lane.gap_offsets, lane.gap_expired, lane.gaps_unknown) == (0, 0, 1)
    assert result_with(Counts(gaps_unknown=1)).exit_code == 3


def test_a_gap_inside_another_hides_nothing_of_it_and_counts_once() -> None:
    """As a target leaves them that loses its end twice."""
    made = ledger(Run(0, 0, 5), Run(30, 5, 10), end=40, gaps=(Gap(12, 25, "lost"), Gap(5, 30, "lost")))
    lane = with_ledger(0, TP, made, Ends(0, 40), Ends(0, 15))
    assert (lane.gap_offsets, lane.gap_expired) == (25, 0)
    (source, _) = split_lane(lane, 0, [], [])
    offsets = np.arange(40, dtype=np.int64)
    assert list(offsets[Positions(source.runs, source.gaps).in_gap(offsets)]) == list(range(5, 30))


def test_nothing_may_stand_behind_a_copy_that_has_all() -> None:
    """Records that came twice at the end would be behind the ledger, where nobody looks."""
    made = ledger(Run(0, 0, 90), end=100)
    lane = with_ledger(0, TP, made, Ends(0, 100), Ends(0, 95))
    assert (lane.target_range, lane.pending_target) == ((0, 95), 0)
    lane = with_ledger(0, TP, made, Ends(0, 110), Ends(0, 95))  # perhaps those of the source, not booked yet
    assert (lane.target_range, lane.pending_target) == ((0, 90), 5)
    lane = with_ledger(0, TP, made, Ends(0, 100), Ends(0, 95), written=True)
    assert (lane.target_range, lane.pending_target) == ((0, 90), 5)


def test_what_is_before_the_copy_is_said() -> None:
    made = ledger(Run(50, 0, 50), end=100, start=50)
    made.runs.target_start = 0
    lane = with_ledger(0, TP, made, Ends(20, 100), Ends(0, 50))
    assert lane.notes == ("t-0: the copy begins at source offset 50: what is before is not compared",)


def result_with(totals: Counts) -> AuditResult:
    return AuditResult(
        source="a",
        target="b",
        alignment="link",
        totals=totals,
        partitions=(),
        differences=(),
        incomplete=(),
        missing_topics=(),
        tolerated=(),
        notes=(),
        phases={},
    )


def test_splits_cover_both_ranges_once_with_their_runs() -> None:
    made = ledger(Run(0, 5, 100), Run(110, 105, 90), end=200, gaps=(Gap(100, 110, "x"),))
    lane = with_ledger(3, TP, made, Ends(0, 200), Ends(0, 195))
    splits = split_lane(lane, 10, even_cuts(lane.source_range, 64), even_cuts(lane.target_range, 100))
    assert [split.number for split in splits] == list(range(10, 10 + len(splits)))
    source = [(split.start, split.end) for split in splits if split.side == 0]
    assert source == [(0, 50), (50, 100), (100, 150), (150, 200)]
    target = [(split.start, split.end) for split in splits if split.side == 1]
    assert target == [(0, 97), (97, 195)]
    for split in splits:
        offsets = np.arange(split.start, split.end)
        expected = [
            t.offset if (t := made.runs.to_target(o)).exact and made.runs.to_source(t.offset).offset == o
            else -1 - o
            for o in offsets.tolist()
        ]  # fmt: skip
        if split.side == 0:
            assert Positions(split.runs, split.gaps).expected(offsets).tolist() == expected
            gaps = Positions(split.runs, split.gaps).in_gap(offsets)
            assert gaps.tolist() == [100 <= o < 110 for o in offsets.tolist()]


def test_empty_ranges_need_no_splits() -> None:
    assert split_lane(without_ledger(0, TP, TP, Ends(5, 5), Ends(0, 0)), 0, [], []) == []


@given(start=st.integers(0, 10**6), length=st.integers(0, 10**6), at_most=st.integers(1, 10**6))
def test_even_cuts_respect_the_limit(start: int, length: int, at_most: int) -> None:
    if length // at_most > 10_000:
        at_most = length // 10_000 + 1
    cuts = [start, *even_cuts(Ends(start, start + length), at_most), start + length]
    sizes = [b - a for a, b in pairwise(cuts)]
    assert sum(sizes) == length
    assert max(sizes) <= at_most
    assert max(sizes) - min(sizes) <= 1


@given(sizes=st.lists(st.integers(1, 100), max_size=40), tasks=st.integers(1, 10))
def test_bundles_hold_every_split_once_and_are_even(sizes: list[int], tasks: int) -> None:
    splits = [Split(number, 0, 0, TP, 0, size) for number, size in enumerate(sizes)]
    bundles = bundle(splits, tasks)
    assert sorted(split.number for held in bundles for split in held) == list(range(len(sizes)))
    assert len(bundles) == min(tasks, len(sizes))
    loads = [sum(split.end for split in held) for held in bundles]
    assert max(loads, default=0) - min(loads, default=0) <= max(sizes, default=0)


class Unsteady:
    """A client whose answers are wrong a few times: C23."""

    cluster_id = "c"
    retry = None

    def __init__(self, wrong: int, kind: str) -> None:
        self._wrong = wrong
        self._kind = kind

    def _lies(self, kind: str) -> bool:
        if self._kind == kind and self._wrong:
            self._wrong -= 1
            return True
        return False

    async def metadata(self, topics: Collection[str], *, retry: Any = None) -> Any:
        if self._lies("metadata"):
            return SimpleNamespace(topics={})
        partitions = {0: SimpleNamespace()}
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED if self._lies("refused") else ErrorCode.NONE
        known = SimpleNamespace(error=error, topic_id=b"\1" * 16, partitions=partitions)
        return SimpleNamespace(topics={name: known for name in topics if name == "t"})

    async def describe_configs(self, names: list[str]) -> dict[str, dict[str, Any]]:
        return {name: {} for name in names}

    async def list_offsets(self, wanted: Mapping[TopicPartition, int], **_: Any) -> Any:
        (tp, time), *_rest = wanted.items()
        if self._lies("no leader"):
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(tp))
        offset = 100 if time == LATEST and not self._lies("earliest for latest") else 0
        return {tp: ListedOffset(offset, -1, 0)}

    def forget_leader(self, tp: TopicPartition) -> None:
        assert tp == TP


def view(client: Unsteady, settle_s: float = 5.0) -> ClusterView:
    return ClusterView(client, settle_s)  # type: ignore[arg-type]


async def test_an_empty_topic_list_is_asked_for_again() -> None:
    found = await view(Unsteady(1, "metadata")).topics({"t"})
    assert found["t"].partitions == (0,)


async def test_a_topic_is_missing_only_when_that_lasts() -> None:
    assert await view(Unsteady(0, ""), settle_s=0.6).topics({"t", "gone"}) == {
        "t": (await view(Unsteady(0, "")).topics({"t"}))["t"]
    }


@pytest.mark.timeout(30)
async def test_a_topic_that_nobody_may_look_at_is_not_waited_for_and_not_called_missing() -> None:
    found = await view(Unsteady(10**6, "refused"), settle_s=0.6).topics({"t"})
    assert "TOPIC_AUTHORIZATION_FAILED" in str(found["t"])
    plan = await make_plan(SETTINGS, view(Unsteady(10**6, "refused"), 0.6), Side({"t": topic()}), None)
    assert plan.missing_topics == []
    assert "t of east: not readable: TOPIC_AUTHORIZATION_FAILED" in plan.incomplete[0]
    assert isinstance((await view(Unsteady(1, "refused")).topics({"t"}))["t"], TopicView)


@pytest.mark.parametrize("known_end", [0, 100])
async def test_an_end_that_went_back_for_a_moment_is_not_believed(known_end: int) -> None:
    assert await view(Unsteady(1, "earliest for latest")).ends(TP, known_end) == Ends(0, 100)


async def test_a_leader_that_comes_back_is_waited_for() -> None:
    assert await view(Unsteady(2, "no leader")).ends(TP) == Ends(0, 100)


async def test_a_leader_that_stays_away_is_said_and_not_taken_for_an_empty_log() -> None:
    found = await view(Unsteady(10**6, "no leader"), settle_s=0.6).ends(TP)
    assert isinstance(found, str)
    assert "LEADER_NOT_AVAILABLE" in found


class Side:
    """A side with given topics."""

    cluster_id = "c"

    def __init__(
        self, topics: dict[str, TopicView], ends: Ends | str = TEN, of: dict[int, Ends] | None = None
    ) -> None:
        self._topics = topics
        self._ends = ends
        self._of = of or {}

    async def topics(self, names: Collection[str]) -> dict[str, TopicView | str]:
        return {name: topic for name, topic in self._topics.items() if name in names}

    async def ends(self, tp: TopicPartition, at_least: int = 0) -> Ends | str:
        return self._of.get(tp.partition, self._ends)


def topic(
    topic_id: str = "A", partitions: int = 1, policy: str = "delete", append: bool = False
) -> TopicView:
    return TopicView("t", topic_id, policy, append, tuple(range(partitions)), {})


SETTINGS = AuditSettings(
    source=ClusterSide(bootstrap="h:1", name="east"),
    target=ClusterSide(bootstrap="h:2", name="west"),
    topics=(TopicPair(source="t", target="t"),),
    alignment=ByContent(),
)


async def test_a_topic_that_was_created_again_is_not_compared() -> None:
    ledgers = {TP: ledger(Run(0, 0, 10), end=10)}
    plan = await make_plan(SETTINGS, Side({"t": topic("A2")}), Side({"t": topic("B")}), ledgers)
    assert plan.lanes == []
    assert "created again" in plan.incomplete[0]
    plan = await make_plan(SETTINGS, Side({"t": topic("A")}), Side({"t": topic("B")}), ledgers)
    assert len(plan.lanes) == 1
    assert plan.incomplete == []


async def test_what_cannot_be_compared_is_named() -> None:
    plan = await make_plan(SETTINGS, Side({"t": topic()}), Side({}), None)
    assert plan.missing_topics == ["t does not exist in west"]
    plan = await make_plan(SETTINGS, Side({"t": topic(partitions=2)}), Side({"t": topic()}), None)
    assert "2 partitions" in plan.incomplete[0]
    assert len(plan.lanes) == 1
    plan = await make_plan(SETTINGS, Side({"t": topic()}, "no leader"), Side({"t": topic()}), None)
    assert plan.incomplete == ["t-0 of east: not readable: no leader"]
    plan = await make_plan(SETTINGS, Side({"t": topic()}), Side({"t": topic()}), {})
    assert plan.incomplete == ["t-0: there is no ledger of it"]


async def test_mirrors_are_compared_by_offset_and_their_gaps_are_no_secret() -> None:
    """Both logs begin behind the gap, so nothing else tells of it; another partition lacks nothing."""
    of = LinkLedger(source_alias="east", target_alias="west", bootstrap="h:2", identical=True)
    settings = SETTINGS.model_copy(update={"alignment": of})
    sides = [Side({"t": topic(partitions=2)}, Ends(20, end)) for end in (40, 35)]
    plan = await make_plan(settings, *sides, {TP: ledger(end=0, gaps=(Gap(10, 20, "retention passed"),))})
    assert plan.incomplete == []
    assert [(lane.source_range, lane.pending_source) for lane in plan.lanes] == [((20, 35), 5)] * 2
    assert [(lane.gap_offsets, lane.gap_expired) for lane in plan.lanes] == [(0, 10), (0, 0)]


async def test_gaps_of_a_mirrored_topic_that_had_the_name_before_hide_nothing_of_the_new_one() -> None:
    of = LinkLedger(source_alias="east", target_alias="west", bootstrap="h:2", identical=True)
    settings = SETTINGS.model_copy(update={"alignment": of})
    lacks = {TP: ledger(end=0, gaps=(Gap(2, 5, "retention passed"),))}
    for topic_id, expected in (("A", (3, 0)), ("A2", (0, 3))):
        plan = await make_plan(settings, Side({"t": topic(topic_id)}), Side({"t": topic("B")}), lacks)
        (lane,) = plan.lanes
        assert (lane.gap_offsets, lane.gap_expired) == expected


async def test_a_mirror_that_has_more_than_its_source_differs_from_it() -> None:
    """The source lost its end. One that was promoted has records of its own."""
    of = LinkLedger(source_alias="east", target_alias="west", bootstrap="h:2", identical=True)
    settings = SETTINGS.model_copy(update={"alignment": of})
    for mirror, expected in ((True, (5, 0)), (False, (0, 5))):
        there = Side({"t": replace(topic(), is_mirror=mirror)}, Ends(0, 40))
        plan = await make_plan(settings, Side({"t": topic()}, Ends(0, 35)), there, {})
        (lane,) = plan.lanes
        assert (lane.source_range, lane.target_range) == ((0, 35), (0, 35))
        assert (lane.divergent, lane.pending_target) == expected
    plan = await make_plan(settings, Side({"t": topic()}, Ends(0, 40)), there, {})
    assert (plan.lanes[0].divergent, plan.lanes[0].target_range) == (0, (0, 40))


async def test_what_applications_wrote_to_a_restored_topic_is_no_difference() -> None:
    """Behind a link's finished copy it is one."""
    store = ObjectStoreSettings(bucket="vault")
    of_restore = RestoreLedger(store=store, backup_id="b1", restore_id="r1")
    of_link = LinkLedger(source_alias="east", target_alias="west", bootstrap="h:2")
    for alignment, expected in ((of_restore, (10, 5)), (of_link, (15, 0))):
        settings = SETTINGS.model_copy(update={"alignment": alignment})
        there = Side({"t": topic("B")}, Ends(0, 15))
        plan = await make_plan(settings, Side({"t": topic()}), there, {TP: ledger(Run(0, 0, 10), end=10)})
        (lane,) = plan.lanes
        assert (lane.target_range.end, lane.pending_target) == expected


async def test_partitions_that_only_the_target_has_matter_when_they_hold_something() -> None:
    ledgers = {TP: ledger(Run(0, 0, 10), end=10)}
    for end, expected in ((0, 0), (3, 1)):
        there = Side({"t": topic("B", partitions=2)}, of={1: Ends(0, end)})
        plan = await make_plan(SETTINGS, Side({"t": topic()}), there, ledgers)
        assert (len(plan.incomplete), len(plan.lanes)) == (expected, 1)


async def test_a_partition_on_record_that_no_side_has_is_named() -> None:
    ledgers = {TopicPartition("t", n): ledger(Run(0, 0, 10), end=10) for n in range(3)}
    plan = await make_plan(SETTINGS, Side({"t": topic()}), Side({"t": topic("B")}), ledgers)
    assert plan.incomplete == ["t: partitions [1, 2] are on record and not there"]


async def test_append_time_and_compaction_change_what_is_compared() -> None:
    plan = await make_plan(SETTINGS, Side({"t": topic(append=True)}), Side({"t": topic()}), None)
    assert not plan.lanes[0].with_timestamp
    assert not plan.splits[0].with_timestamp
    plan = await make_plan(SETTINGS, Side({"t": topic()}), Side({"t": topic(policy="compact")}), None)
    assert plan.lanes[0].compacted


def test_records_copied_again_after_a_truncation_are_compared_and_the_old_copies_left_out() -> None:
    made = ledger(Run(0, 0, 100), end=100)
    made.rewind(80, "source truncated", 1)
    made.add(Copied((Run(80, 100, 30),), 110, 30, 1, (1,)))
    lane = with_ledger(0, TP, made, Ends(0, 110), Ends(0, 130))
    source, target = split_lane(lane, 0, [], [])
    offsets = np.arange(0, 130, dtype=np.int64)
    there = Positions(target.runs, target.gaps)
    assert list(offsets[there.in_gap(offsets)]) == list(range(80, 100))
    here = Positions(source.runs, source.gaps)
    assert not here.in_gap(offsets).any()
    assert list(here.expected(np.arange(78, 82, dtype=np.int64))) == [78, 79, 100, 101]


def test_gaps_of_a_topic_that_had_the_name_before_hide_nothing_of_the_new_one() -> None:
    made = ledger(Run(0, 0, 100), end=100)
    made.former_gaps.append(Gap(20, 50, "retention passed", 1))
    lane = with_ledger(0, TP, made, Ends(0, 100), Ends(0, 100))
    assert (lane.gap_offsets, lane.gap_expired) == (0, 30)
    assert split_lane(lane, 0, [], [])[0].gaps == ()
